// What Julia packages below Reactant look up in libraries of their own as they load.
#include <cstddef>
#include <cstdint>

#include "errors.h"

// Enzyme.jl sets options of its library. Nothing here differentiates.
// They are larger than the objects that they stand for.
#define OPTION(name)                                                   \
  extern "C" {                                                         \
  __attribute__((visibility("default"))) char name[64] = {};           \
  }
OPTION(CustomAllocator)
OPTION(CustomDeallocator)
OPTION(CustomErrorHandler)
OPTION(CustomRuntimeInactiveError)
OPTION(CustomZero)
OPTION(EnzymeDefaultTapeType)
OPTION(EnzymeFixupReturn)
OPTION(EnzymeJuliaAddrLoad)
OPTION(EnzymeMemmoveWarning)
OPTION(EnzymeNonPower2Cache)
OPTION(EnzymePostCacheStore)
OPTION(EnzymeSanitizeDerivatives)
OPTION(EnzymeShadowAllocRewrite)
OPTION(EnzymeTypeWarning)
OPTION(EnzymeUndefinedValueForType)
OPTION(EnzymeZeroCache)

EXPORT void EnzymeSetCLBool(void *, uint8_t) {}
EXPORT void EnzymeSetCLInteger(void *, int64_t) {}
EXPORT void EnzymeRegisterAllocationHandler(const char *, void *, void *) {}
EXPORT void EnzymeRegisterCallHandler(const char *, void *, void *) {}
EXPORT void EnzymeRegisterFwdCallHandler(const char *, void *) {}
EXPORT void EnzymeRegisterDiffUseCallHandler(const char *, void *) {}

// OpenMP, for kernels.
EXPORT void __kmpc_barrier() { fail("this library has no OpenMP"); }
EXPORT void __kmpc_global_thread_num() { fail("this library has no OpenMP"); }
EXPORT void __kmpc_for_static_fini() { fail("this library has no OpenMP"); }
EXPORT void __kmpc_for_static_init_8u() { fail("this library has no OpenMP"); }
EXPORT void __kmpc_fork_call() { fail("this library has no OpenMP"); }

// Tracy, which measures: it is never connected.
struct TracyZone {
  uint32_t id;
  int active;
};
EXPORT TracyZone ___tracy_emit_zone_begin(void *, int) { return {0, 0}; }
EXPORT void ___tracy_emit_zone_end(TracyZone) {}
EXPORT void ___tracy_emit_zone_name(TracyZone, const char *, size_t) {}
EXPORT void ___tracy_emit_zone_color(TracyZone, uint32_t) {}
EXPORT void ___tracy_emit_message(const char *, size_t, int) {}
EXPORT void ___tracy_emit_messageC(const char *, size_t, uint32_t, int) {}
EXPORT void ___tracy_send_srcloc(void *) {}
EXPORT int ___tracy_connected() { return 0; }
