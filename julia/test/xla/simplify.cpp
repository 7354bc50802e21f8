#include "passes.h"

using namespace mlir_help;

namespace {

MlirValue operand(MlirOperation op) { return mlirOperationGetOperand(op, 0); }
MlirValue result(MlirOperation op) { return mlirOperationGetResult(op, 0); }

bool in_order(const Shape &dimensions) {
  for (size_t n = 0; n < dimensions.size(); ++n)
    if (dimensions[n] != (int64_t)n) return false;
  return true;
}

void replace_by(MlirOperation op, std::string_view name, MlirValue source,
                std::string_view attribute, const Shape &dimensions) {
  MlirContext context = mlirOperationGetContext(op);
  auto value = mlirDenseI64ArrayGet(context, dimensions.size(), dimensions.data());
  MlirOperation made = insert_before(op, name, {source}, {mlirValueGetType(result(op))},
                                     {named(context, attribute, value)});
  replace(op, {result(made)});
}

// Each function tries to replace the operation, and says whether it did.

bool transpose(MlirOperation op) {
  Shape order = numbers(op, "permutation");
  if (in_order(order)) return replace(op, {operand(op)}), true;
  if (auto before = made_by(operand(op), "stablehlo.transpose"); before.ptr) {
    Shape inner = numbers(before, "permutation"), joined;
    for (int64_t n : order) joined.push_back(inner[n]);
    replace_by(op, "stablehlo.transpose", operand(before), "permutation", joined);
    return true;
  }
  if (auto before = made_by(operand(op), "stablehlo.broadcast_in_dim"); before.ptr) {
    Shape place(order.size()), moved;
    for (size_t n = 0; n < order.size(); ++n) place[order[n]] = n;
    for (int64_t n : numbers(before, "broadcast_dimensions")) moved.push_back(place[n]);
    replace_by(op, "stablehlo.broadcast_in_dim", operand(before), "broadcast_dimensions", moved);
    return true;
  }
  return false;
}

bool broadcast(MlirOperation op) {
  Shape places = numbers(op, "broadcast_dimensions");
  bool same = mlirTypeEqual(mlirValueGetType(operand(op)), mlirValueGetType(result(op)));
  if (same && in_order(places)) return replace(op, {operand(op)}), true;
  if (auto before = made_by(operand(op), "stablehlo.broadcast_in_dim"); before.ptr) {
    Shape joined;
    for (int64_t n : numbers(before, "broadcast_dimensions")) joined.push_back(places[n]);
    replace_by(op, "stablehlo.broadcast_in_dim", operand(before), "broadcast_dimensions", joined);
    return true;
  }
  return false;
}

bool reshape(MlirOperation op) {
  if (mlirTypeEqual(mlirValueGetType(operand(op)), mlirValueGetType(result(op))))
    return replace(op, {operand(op)}), true;
  if (auto before = made_by(operand(op), "stablehlo.reshape"); before.ptr) {
    MlirOperation made = insert_before(op, "stablehlo.reshape", {operand(before)},
                                       {mlirValueGetType(result(op))}, {});
    return replace(op, {result(made)}), true;
  }
  return false;
}

// A conversion, slice or single part that is all there is.
bool unchanged(MlirOperation op, intptr_t whole) {
  MlirValue value = mlirOperationGetOperand(op, whole);
  if (!mlirTypeEqual(mlirValueGetType(value), mlirValueGetType(result(op)))) return false;
  return replace(op, {value}), true;
}

// A loop's result that each turn hands on as it is, is what the loop began with.
bool loop(MlirOperation op) {
  MlirBlock body = mlirRegionGetFirstBlock(mlirOperationGetRegion(op, 1));
  MlirOperation last = operations(body).back();
  bool changed = false;
  for (intptr_t n = 0; n < mlirOperationGetNumOperands(last); ++n) {
    MlirValue next = mlirOperationGetOperand(last, n), out = mlirOperationGetResult(op, n);
    if (next.ptr != mlirBlockGetArgument(body, n).ptr || !mlirValueGetFirstUse(out).ptr) continue;
    mlirValueReplaceAllUsesOfWith(out, mlirOperationGetOperand(op, n));
    changed = true;
  }
  return changed;
}

bool step(MlirOperation op) {
  auto is = [&](const char *wanted) { return name(op) == wanted; };
  if (is("stablehlo.transpose")) return transpose(op);
  if (is("stablehlo.broadcast_in_dim")) return broadcast(op);
  if (is("stablehlo.reshape")) return reshape(op);
  if (is("stablehlo.while")) return loop(op);
  for (auto same : {"stablehlo.convert", "stablehlo.slice", "stablehlo.dynamic_slice",
                    "stablehlo.concatenate", "enzyme.ignore_derivatives"})
    if (is(same)) return unchanged(op, 0);
  if (is("stablehlo.dynamic_update_slice")) return unchanged(op, 1);
  return false;
}

} // namespace

std::string simplify(MlirOperation module) {
  // An operation only replaces itself, so the others of the list stay valid.
  for (bool more = true; more;) {
    more = false;
    for (MlirOperation op : within(module)) more |= step(op);
  }
  return "";
}
