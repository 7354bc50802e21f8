// Arrays of IFRT: in the child, of which this side knows dtype, shape and sharding.
#pragma once

#include "shardings.h"

struct Array {
  Client *client;
  HeldPointer held;
  int64_t dtype; // a number of xla_data.proto
  Numbers shape;
  SharedSharding sharding;
};

// A sharding on one device.
SharedSharding on_one(Device *device);
