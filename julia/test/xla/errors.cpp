#include "errors.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

// Reactant stores its handler here before it calls anything else.
extern "C" {
__attribute__((visibility("default"))) void (*ReactantThrowError)(const char *) = nullptr;
}

void fail(const std::string &message) {
  if (ReactantThrowError) ReactantThrowError(message.c_str());
  std::fprintf(stderr, "XLA library for tests: %s\n", message.c_str());
  std::abort();
}

char *copy_of(const std::string &text) { return strdup(text.c_str()); }
