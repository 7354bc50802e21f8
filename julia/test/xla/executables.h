// Compiled programs.
#pragma once

#include "arrays.h"

struct Executable {
  struct Result {
    int64_t dtype;
    Numbers shape;
    SharedSharding sharding;
  };
  Client *client;
  HeldPointer held;
  std::vector<Result> results;
};
