// MLIR: its dialects and passes, and the functions that Reactant's binary adds to its C interface.
#include "mlir.h"

#include <mutex>

#include "errors.h"

namespace mlir_help {

Shape shape(MlirType tensor) {
  Shape sizes(mlirShapedTypeGetRank(tensor));
  for (size_t n = 0; n < sizes.size(); ++n) sizes[n] = mlirShapedTypeGetDimSize(tensor, n);
  return sizes;
}

MlirType tensor(const Shape &shape, MlirType element) {
  return mlirRankedTensorTypeGet(shape.size(), shape.data(), element, mlirAttributeGetNull());
}

Shape numbers(MlirOperation op, std::string_view attribute) {
  MlirAttribute array = mlirOperationGetAttributeByName(op, attribute);
  Shape values(mlirDenseArrayGetNumElements(array));
  for (size_t n = 0; n < values.size(); ++n) values[n] = mlirDenseI64ArrayGetElement(array, n);
  return values;
}

MlirNamedAttribute named(MlirContext context, std::string_view name, MlirAttribute attribute) {
  return {mlirIdentifierGet(context, name), attribute};
}

std::vector<MlirOperation> operations(MlirBlock block) {
  std::vector<MlirOperation> found;
  for (auto op = mlirBlockGetFirstOperation(block); op.ptr; op = mlirOperationGetNextInBlock(op))
    found.push_back(op);
  return found;
}

std::vector<MlirBlock> blocks(MlirOperation op) {
  std::vector<MlirBlock> found;
  for (intptr_t n = 0; n < mlirOperationGetNumRegions(op); ++n)
    for (auto block = mlirRegionGetFirstBlock(mlirOperationGetRegion(op, n)); block.ptr;
         block = mlirBlockGetNextInRegion(block))
      found.push_back(block);
  return found;
}

std::vector<MlirOperation> within(MlirOperation op) {
  std::vector<MlirOperation> found;
  for (MlirBlock block : blocks(op))
    for (MlirOperation inner : operations(block)) {
      found.push_back(inner);
      auto deeper = within(inner);
      found.insert(found.end(), deeper.begin(), deeper.end());
    }
  return found;
}

MlirOperation insert_before(MlirOperation at, std::string_view name,
                            std::vector<MlirValue> operands, std::vector<MlirType> results,
                            std::vector<MlirNamedAttribute> attributes) {
  MlirOperationState state{name,
                           mlirOperationGetLocation(at),
                           (intptr_t)results.size(),
                           results.data(),
                           (intptr_t)operands.size(),
                           operands.data(),
                           0,
                           nullptr,
                           0,
                           nullptr,
                           (intptr_t)attributes.size(),
                           attributes.data(),
                           false};
  // mlirOperationCreate frees lists that mlirOperationState* functions allocated, so copy them.
  auto owned = [](auto *data, intptr_t count) {
    using Element = std::remove_pointer_t<decltype(data)>;
    if (count == 0) return static_cast<Element *>(nullptr);
    auto copy = static_cast<Element *>(malloc(count * sizeof(Element)));
    std::copy(data, data + count, copy);
    return copy;
  };
  state.result_types = owned(state.result_types, state.results);
  state.operand_values = owned(state.operand_values, state.operands);
  state.attribute_list = owned(state.attribute_list, state.attributes);
  MlirOperation made = mlirOperationCreate(&state);
  mlirBlockInsertOwnedOperationBefore(mlirOperationGetBlock(at), at, made);
  return made;
}

MlirOperation made_by(MlirValue value, std::string_view wanted) {
  if (!mlirValueIsAOpResult(value)) return {nullptr};
  MlirOperation op = mlirOpResultGetOwner(value);
  return name(op) == wanted ? op : MlirOperation{nullptr};
}

MlirOperation function_named(MlirOperation module, std::string_view wanted) {
  for (MlirBlock block : blocks(module))
    for (MlirOperation op : operations(block)) {
      MlirAttribute symbol = mlirOperationGetAttributeByName(op, std::string_view("sym_name"));
      if (symbol.ptr && mlirStringAttrGetValue(symbol).view() == wanted) return op;
    }
  return {nullptr};
}

std::string_view callee(MlirOperation op) {
  std::string_view attribute = name(op) == "func.call" ? "callee" : "fn";
  return mlirFlatSymbolRefAttrGetValue(mlirOperationGetAttributeByName(op, attribute)).view();
}

void replace(MlirOperation op, const std::vector<MlirValue> &values) {
  for (size_t n = 0; n < values.size(); ++n)
    mlirValueReplaceAllUsesOfWith(mlirOperationGetResult(op, n), values[n]);
  mlirOperationDestroy(op);
}

} // namespace mlir_help

EXPORT void InitializeRegistry(MlirDialectRegistry) {} // RegisterDialects does it, by context

EXPORT void RegisterDialects(MlirContext context) {
  for (auto handle :
       {mlirGetDialectHandle__arith__(), mlirGetDialectHandle__chlo__(),
        mlirGetDialectHandle__func__(), mlirGetDialectHandle__math__(),
        mlirGetDialectHandle__mhlo__(), mlirGetDialectHandle__sdy__(),
        mlirGetDialectHandle__stablehlo__()}) {
    mlirDialectHandleRegisterDialect(handle, context);
    mlirDialectHandleLoadDialect(handle, context);
  }
  mlirContextSetAllowUnregisteredDialects(context, true); // enzyme.batch
}

EXPORT void InitializePasses(MlirDialectRegistry) {
  static std::once_flag once;
  std::call_once(once, [] {
    mlirRegisterTransformsPasses();
    mlirRegisterAllMhloPasses();
    mlirRegisterAllStablehloPasses();
    mlirRegisterAllSdyPassesAndPipelines();
  });
}

EXPORT bool mlirOperationInject(MlirContext context, MlirBlock block, MlirStringRef code,
                                MlirLocation, bool) {
  MlirModule parsed = mlirModuleCreateParse(context, code);
  if (!mlirModuleGetOperation(parsed).ptr) return false;
  for (MlirOperation op : mlir_help::operations(mlirModuleGetBody(parsed))) {
    mlirOperationRemoveFromParent(op);
    mlirBlockAppendOwnedOperation(block, op);
  }
  mlirModuleDestroy(parsed);
  return true;
}

EXPORT MlirOperation mlirOperationParse(MlirContext context, MlirBlock block, MlirStringRef code,
                                        MlirLocation, bool) {
  MlirOperation op = mlirOperationCreateParse(context, code, std::string_view("code"));
  if (op.ptr) mlirBlockAppendOwnedOperation(block, op);
  return op;
}

EXPORT bool mlirIsFunctionOpInterface(MlirOperation op) {
  return mlir_help::name(op) == "func.func";
}

EXPORT MlirType mlirGetFunctionTypeFromOperation(MlirOperation op) {
  if (!mlirIsFunctionOpInterface(op)) fail("not a function");
  return mlirTypeAttrGetValue(
      mlirOperationGetAttributeByName(op, std::string_view("function_type")));
}

// Newer MLIR can ask what a location is. The answer here is: something else.
EXPORT bool mlirLocationIsAFileLineColRange(MlirLocation) { return false; }
EXPORT bool mlirLocationIsACallSite(MlirLocation) { return false; }
EXPORT bool mlirLocationIsAFused(MlirLocation) { return false; }
EXPORT bool mlirLocationIsAName(MlirLocation) { return false; }
EXPORT bool mlirLocationIsAUnknown(MlirLocation) { return false; }
EXPORT MlirLocation mlirValueGetLocation(MlirValue value) {
  return mlirLocationUnknownGet(mlirTypeGetContext(mlirValueGetType(value)));
}
