// enzyme.batch, by which Reactant broadcasts a Julia function of scalars over arrays.
#include <map>

#include "passes.h"

using namespace mlir_help;

namespace {

bool is_dialect(MlirOperation op, std::string_view dialect) {
  return name(op).substr(0, dialect.size()) == dialect;
}

// Writes a function's body before an operation, on arrays in place of scalars.
struct Expansion {
  MlirOperation module, at;
  Shape batch;
  std::string error;

  MlirType widened(MlirType scalar) {
    Shape sizes = batch, inner = shape(scalar);
    sizes.insert(sizes.end(), inner.begin(), inner.end());
    return tensor(sizes, mlirShapedTypeGetElementType(scalar));
  }

  std::vector<MlirValue> body(MlirOperation function, const std::vector<MlirValue> &arguments) {
    MlirBlock block = blocks(function)[0];
    std::map<void *, MlirValue> values;
    for (size_t n = 0; n < arguments.size(); ++n)
      values[mlirBlockGetArgument(block, n).ptr] = arguments[n];
    for (MlirOperation op : operations(block)) {
      std::vector<MlirValue> operands;
      for (intptr_t n = 0; n < mlirOperationGetNumOperands(op); ++n)
        operands.push_back(values.at(mlirOperationGetOperand(op, n).ptr));
      if (name(op) == "func.return") return operands;
      auto results = one(op, operands);
      if (!error.empty()) return {};
      for (size_t n = 0; n < results.size(); ++n)
        values[mlirOperationGetResult(op, n).ptr] = results[n];
    }
    error = "a function without a return";
    return {};
  }

  std::vector<MlirValue> one(MlirOperation op, std::vector<MlirValue> &operands) {
    if (name(op) == "func.call") {
      MlirOperation function = function_named(module, callee(op));
      if (function.ptr) return body(function, operands);
    }
    if (name(op) == "stablehlo.constant") return {constant(op)};
    bool scalar = true;
    for (intptr_t n = 0; n < mlirOperationGetNumResults(op); ++n)
      scalar &= shape(mlirValueGetType(mlirOperationGetResult(op, n))).empty();
    for (intptr_t n = 0; n < mlirOperationGetNumOperands(op); ++n)
      scalar &= shape(mlirValueGetType(mlirOperationGetOperand(op, n))).empty();
    bool known = is_dialect(op, "stablehlo.") || is_dialect(op, "chlo.");
    if (!scalar || !known || mlirOperationGetNumRegions(op) > 0) {
      error = "enzyme-batch: this library cannot broadcast " + std::string(name(op));
      return {};
    }
    // Between scalars these change nothing.
    for (auto same : {"stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.transpose"})
      if (name(op) == same) return operands;
    return elementwise(op, operands);
  }

  std::vector<MlirValue> elementwise(MlirOperation op, const std::vector<MlirValue> &operands) {
    std::vector<MlirType> types;
    for (intptr_t n = 0; n < mlirOperationGetNumResults(op); ++n)
      types.push_back(widened(mlirValueGetType(mlirOperationGetResult(op, n))));
    std::vector<MlirNamedAttribute> attributes;
    for (intptr_t n = 0; n < mlirOperationGetNumAttributes(op); ++n)
      attributes.push_back(mlirOperationGetAttribute(op, n));
    MlirOperation made = insert_before(at, name(op), operands, types, attributes);
    std::vector<MlirValue> results;
    for (size_t n = 0; n < types.size(); ++n) results.push_back(mlirOperationGetResult(made, n));
    return results;
  }

  MlirValue constant(MlirOperation op) {
    MlirContext context = mlirOperationGetContext(op);
    MlirType type = mlirValueGetType(mlirOperationGetResult(op, 0));
    MlirAttribute value = mlirOperationGetAttributeByName(op, std::string_view("value"));
    MlirOperation small =
        insert_before(at, "stablehlo.constant", {}, {type}, {named(context, "value", value)});
    Shape dimensions(shape(type).size());
    for (size_t n = 0; n < dimensions.size(); ++n) dimensions[n] = batch.size() + n;
    MlirAttribute places = mlirDenseI64ArrayGet(context, dimensions.size(), dimensions.data());
    MlirOperation wide = insert_before(at, "stablehlo.broadcast_in_dim",
                                       {mlirOperationGetResult(small, 0)}, {widened(type)},
                                       {named(context, "broadcast_dimensions", places)});
    return mlirOperationGetResult(wide, 0);
  }
};

bool has_batch(MlirOperation function) {
  for (MlirOperation op : within(function))
    if (name(op) == "enzyme.batch") return true;
  return false;
}

} // namespace

std::string expand_batches(MlirOperation module) {
  for (bool more = true; more;) {
    more = false;
    for (MlirOperation op : within(module)) {
      if (name(op) != "enzyme.batch") continue;
      MlirOperation function = function_named(module, callee(op));
      if (!function.ptr) return "enzyme-batch: no function " + std::string(callee(op));
      if (has_batch(function)) continue; // the inner one first
      Expansion expansion{module, op, numbers(op, "batch_shape"), ""};
      std::vector<MlirValue> operands;
      for (intptr_t n = 0; n < mlirOperationGetNumOperands(op); ++n)
        operands.push_back(mlirOperationGetOperand(op, n));
      auto results = expansion.body(function, operands);
      if (!expansion.error.empty()) return expansion.error;
      replace(op, results);
      more = true;
      break; // what was listed may be gone
    }
  }
  return "";
}
