// The distributed runtime: XLA's coordination service and its clients.
#pragma once

#include "wire.h"

struct DistributedClient {
  HeldPointer held;
};

struct DistributedService {
  HeldPointer held;
};
