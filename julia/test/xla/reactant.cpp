// What Reactant calls as it loads, and what only other platforms have.
#include <cstdint>
#include <cstdlib>

#include "errors.h"

EXPORT void InitializeLogs() {}
EXPORT void SetLogLevel(int) {}
EXPORT void ReactantLLVMParseCommandLineOptions(int, const char **, const char *) {}

// Kernels and Julia callbacks inside programs need these; there are none here.
EXPORT void EnzymeJaXMapSymbol(const char *, void *) {}
EXPORT void RegisterEnzymeXLACPUHandler() {}
EXPORT void RegisterEnzymeXLAGPUHandler() {}
EXPORT void registerEnzymeJaXXLAFFI() {}
EXPORT void registerReactantXLAFFI() {}

EXPORT int32_t ReactantHermeticCudaGetVersion() { return 0; } // no CUDA
EXPORT int32_t ReactantCudaDriverGetVersion() { return 0; }

// Reactant looks these up as it loads, and calls them only with its PJRT runtime.
EXPORT void XLAExecute(void *, int, void **, uint8_t *, int, void **, uint8_t *, void **) {
  fail("XLAExecute: this library has IFRT only");
}
EXPORT void XLAExecuteSharded(void *, int, void **, void *, uint8_t *, int, void **, uint8_t *,
                              void **) {
  fail("XLAExecuteSharded: this library has IFRT only");
}
EXPORT void *MakeCPUClient(uint8_t, int) { fail("MakeCPUClient: set xla_runtime to IFRT"); }

// No options: the child takes those of jax, but for devices and sharding. Julia frees them, and
// sets fields of the options' field executable_build_options (number 3), which must be there.
EXPORT void *ReactantGetDebugOptions(size_t *size) {
  *size = 0;
  return std::malloc(1);
}
EXPORT void *ReactantGetCompileOptions(size_t *size) {
  *size = 2;
  auto *bytes = static_cast<uint8_t *>(std::malloc(*size));
  bytes[0] = 3 << 3 | 2; // an embedded message
  bytes[1] = 0;          // of no bytes
  return bytes;
}
