// Clients, their devices and memories, as IFRT has them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wire.h"

struct Client;
struct Device;

struct MemoryKind {
  std::optional<std::string> name;
};

struct Memory {
  Device *device;
  MemoryKind kind;
};

struct Device {
  Client *client;
  int64_t id, process, local_id;
  bool addressable;
  std::string kind;
  std::vector<std::unique_ptr<Memory>> memories;
  std::vector<Memory *> memory_list;
  Memory *default_memory;
};

struct Client {
  HeldPointer held;
  std::string platform;
  int64_t process;
  std::vector<std::unique_ptr<Device>> devices;

  Device *device(int64_t id) const; // throws if there is none
};
