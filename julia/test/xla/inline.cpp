// Calls of functions, replaced by the functions' bodies. MLIR's own inliner does nothing here:
// the extension that lets it inline func.call is not in the C interface of MLIR.
#include <map>

#include "passes.h"

using namespace mlir_help;

namespace {

using Values = std::map<void *, MlirValue>;

void use(MlirOperation op, const Values &values) {
  for (intptr_t n = 0; n < mlirOperationGetNumOperands(op); ++n)
    if (auto found = values.find(mlirOperationGetOperand(op, n).ptr); found != values.end())
      mlirOperationSetOperand(op, n, found->second);
}

// Writes the function's body before the call, and returns what it returns.
std::vector<MlirValue> body(MlirOperation function, MlirOperation call) {
  MlirBlock block = blocks(function)[0];
  Values values;
  for (intptr_t n = 0; n < mlirBlockGetNumArguments(block); ++n)
    values[mlirBlockGetArgument(block, n).ptr] = mlirOperationGetOperand(call, n);
  std::vector<MlirValue> results;
  for (MlirOperation op : operations(block)) {
    if (name(op) == "func.return") {
      for (intptr_t n = 0; n < mlirOperationGetNumOperands(op); ++n) {
        MlirValue value = mlirOperationGetOperand(op, n);
        results.push_back(values.count(value.ptr) ? values[value.ptr] : value);
      }
      break;
    }
    MlirOperation copy = mlirOperationClone(op);
    mlirBlockInsertOwnedOperationBefore(mlirOperationGetBlock(call), call, copy);
    use(copy, values);
    for (MlirOperation inner : within(copy)) use(inner, values);
    for (intptr_t n = 0; n < mlirOperationGetNumResults(op); ++n)
      values[mlirOperationGetResult(op, n).ptr] = mlirOperationGetResult(copy, n);
  }
  return results;
}

bool calls(MlirOperation function) {
  for (MlirOperation op : within(function))
    if (name(op) == "func.call") return true;
  return false;
}

} // namespace

std::string inline_calls(MlirOperation module) {
  for (bool more = true; more;) {
    more = false;
    for (MlirOperation op : within(module)) {
      if (name(op) != "func.call") continue;
      MlirOperation function = function_named(module, callee(op));
      // Inner calls first, which also leaves recursion alone; a declaration has no body.
      if (!function.ptr || calls(function) || blocks(function).size() != 1) continue;
      replace(op, body(function, op));
      more = true;
      break; // what was listed may be gone
    }
  }
  return "";
}
