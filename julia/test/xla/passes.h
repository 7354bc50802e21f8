// Passes that this library has in a small form. Each returns an error message, or "".
#pragma once

#include "mlir.h"

// Replaces each enzyme.batch of a scalar function by the function's operations on whole arrays.
std::string expand_batches(MlirOperation module);

// Replaces calls by the functions' bodies.
std::string inline_calls(MlirOperation module);

// Removes transposes, broadcasts and conversions that change nothing, and joins the others, so
// that an argument that is returned unchanged is seen to be.
std::string simplify(MlirOperation module);
