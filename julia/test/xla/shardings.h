// XLA's shardings: OpSharding (a message) and HloSharding hold the same here.
#pragma once

#include <memory>
#include <vector>

#include "clients.h"

struct HloSharding {
  // The numbers of xla_data.proto.
  enum Kind : int64_t { replicated = 0, maximal = 1, tiled = 3 };
  Kind kind = replicated;
  bool replicate_on_last = false;
  Numbers dimensions, devices; // of the tile assignment; devices are positions in a list

  bool operator==(const HloSharding &other) const;
  std::string text() const;
  void write(Request &request) const;
  static HloSharding read(Reply &reply);
};

// An HloSharding with the devices that its numbers stand for.
struct Sharding {
  std::vector<Device *> devices;
  MemoryKind memory_kind;
  HloSharding hlo;

  Numbers ids() const;
};
using SharedSharding = std::shared_ptr<const Sharding>;
