// The part of MLIR's C interface that this library calls itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#define MLIR_HANDLE(name) \
  struct name {           \
    void *ptr;            \
  }
MLIR_HANDLE(MlirContext);
MLIR_HANDLE(MlirDialectRegistry);
MLIR_HANDLE(MlirDialectHandle);
MLIR_HANDLE(MlirDialect);
MLIR_HANDLE(MlirModule);
MLIR_HANDLE(MlirRegion);
MLIR_HANDLE(MlirBlock);
MLIR_HANDLE(MlirOperation);
MLIR_HANDLE(MlirValue);
MLIR_HANDLE(MlirOpOperand);
MLIR_HANDLE(MlirType);
MLIR_HANDLE(MlirAttribute);
MLIR_HANDLE(MlirIdentifier);
MLIR_HANDLE(MlirLocation);
MLIR_HANDLE(MlirPass);
MLIR_HANDLE(MlirExternalPass);
MLIR_HANDLE(MlirOpPassManager);
MLIR_HANDLE(MlirTypeID);
MLIR_HANDLE(MlirTypeIDAllocator);
#undef MLIR_HANDLE

struct MlirStringRef {
  const char *data;
  size_t length;
  MlirStringRef(std::string_view text) : data(text.data()), length(text.size()) {}
  MlirStringRef(const std::string &text) : MlirStringRef(std::string_view(text)) {}
  std::string_view view() const { return {data, length}; }
};

struct MlirLogicalResult {
  int8_t value; // 0 is failure
};

struct MlirNamedAttribute {
  MlirIdentifier name;
  MlirAttribute attribute;
};

struct MlirOperationState {
  MlirStringRef name;
  MlirLocation location;
  intptr_t results;
  MlirType *result_types;
  intptr_t operands;
  MlirValue *operand_values;
  intptr_t regions;
  MlirRegion *region_list;
  intptr_t successors;
  MlirBlock *successor_list;
  intptr_t attributes;
  MlirNamedAttribute *attribute_list;
  bool infer_result_types;
};

struct MlirExternalPassCallbacks {
  void (*construct)(void *);
  void (*destruct)(void *);
  MlirLogicalResult (*initialize)(MlirContext, void *);
  void *(*clone)(void *);
  void (*run)(MlirOperation, MlirExternalPass, void *);
};

using MlirStringCallback = void (*)(MlirStringRef, void *);

extern "C" {
MlirDialectHandle mlirGetDialectHandle__arith__();
MlirDialectHandle mlirGetDialectHandle__chlo__();
MlirDialectHandle mlirGetDialectHandle__func__();
MlirDialectHandle mlirGetDialectHandle__math__();
MlirDialectHandle mlirGetDialectHandle__mhlo__();
MlirDialectHandle mlirGetDialectHandle__sdy__();
MlirDialectHandle mlirGetDialectHandle__stablehlo__();
void mlirDialectHandleRegisterDialect(MlirDialectHandle, MlirContext);
MlirDialect mlirDialectHandleLoadDialect(MlirDialectHandle, MlirContext);
void mlirContextSetAllowUnregisteredDialects(MlirContext, bool);
void mlirRegisterTransformsPasses();
void mlirRegisterAllMhloPasses();
void mlirRegisterAllSdyPassesAndPipelines();
void mlirRegisterAllStablehloPasses();

MlirModule mlirModuleCreateParse(MlirContext, MlirStringRef);
MlirBlock mlirModuleGetBody(MlirModule);
MlirOperation mlirModuleGetOperation(MlirModule);
void mlirModuleDestroy(MlirModule);

MlirOperation mlirOperationCreate(MlirOperationState *);
MlirOperation mlirOperationCreateParse(MlirContext, MlirStringRef, MlirStringRef);
MlirOperation mlirOperationClone(MlirOperation);
void mlirOperationSetOperand(MlirOperation, intptr_t, MlirValue);
void mlirOperationDestroy(MlirOperation);
void mlirOperationRemoveFromParent(MlirOperation);
MlirContext mlirOperationGetContext(MlirOperation);
MlirIdentifier mlirOperationGetName(MlirOperation);
MlirLocation mlirOperationGetLocation(MlirOperation);
MlirBlock mlirOperationGetBlock(MlirOperation);
MlirOperation mlirOperationGetParentOperation(MlirOperation);
MlirOperation mlirOperationGetNextInBlock(MlirOperation);
intptr_t mlirOperationGetNumRegions(MlirOperation);
MlirRegion mlirOperationGetRegion(MlirOperation, intptr_t);
intptr_t mlirOperationGetNumOperands(MlirOperation);
MlirValue mlirOperationGetOperand(MlirOperation, intptr_t);
intptr_t mlirOperationGetNumResults(MlirOperation);
MlirValue mlirOperationGetResult(MlirOperation, intptr_t);
intptr_t mlirOperationGetNumAttributes(MlirOperation);
MlirNamedAttribute mlirOperationGetAttribute(MlirOperation, intptr_t);
MlirAttribute mlirOperationGetAttributeByName(MlirOperation, MlirStringRef);
bool mlirOperationRemoveAttributeByName(MlirOperation, MlirStringRef);
void mlirOperationPrint(MlirOperation, MlirStringCallback, void *);

MlirBlock mlirRegionGetFirstBlock(MlirRegion);
MlirBlock mlirBlockGetNextInRegion(MlirBlock);
MlirOperation mlirBlockGetFirstOperation(MlirBlock);
void mlirBlockAppendOwnedOperation(MlirBlock, MlirOperation);
void mlirBlockInsertOwnedOperationBefore(MlirBlock, MlirOperation, MlirOperation);
MlirValue mlirBlockGetArgument(MlirBlock, intptr_t);
intptr_t mlirBlockGetNumArguments(MlirBlock);

bool mlirValueIsAOpResult(MlirValue);
MlirOperation mlirOpResultGetOwner(MlirValue);
MlirType mlirValueGetType(MlirValue);
MlirOpOperand mlirValueGetFirstUse(MlirValue);
void mlirValueReplaceAllUsesOfWith(MlirValue, MlirValue);

MlirContext mlirTypeGetContext(MlirType);
bool mlirTypeEqual(MlirType, MlirType);
MlirType mlirRankedTensorTypeGet(intptr_t, const int64_t *, MlirType, MlirAttribute);
MlirType mlirShapedTypeGetElementType(MlirType);
int64_t mlirShapedTypeGetRank(MlirType);
int64_t mlirShapedTypeGetDimSize(MlirType, intptr_t);

MlirStringRef mlirIdentifierStr(MlirIdentifier);
MlirIdentifier mlirIdentifierGet(MlirContext, MlirStringRef);
MlirLocation mlirLocationUnknownGet(MlirContext);
MlirAttribute mlirAttributeGetNull();
MlirAttribute mlirAttributeParseGet(MlirContext, MlirStringRef);
bool mlirAttributeIsAString(MlirAttribute);
MlirStringRef mlirStringAttrGetValue(MlirAttribute);
MlirAttribute mlirFlatSymbolRefAttrGet(MlirContext, MlirStringRef);
MlirStringRef mlirFlatSymbolRefAttrGetValue(MlirAttribute);
MlirType mlirTypeAttrGetValue(MlirAttribute);
MlirAttribute mlirDenseI64ArrayGet(MlirContext, intptr_t, const int64_t *);
intptr_t mlirDenseArrayGetNumElements(MlirAttribute);
int64_t mlirDenseI64ArrayGetElement(MlirAttribute, intptr_t);

MlirTypeIDAllocator mlirTypeIDAllocatorCreate();
MlirTypeID mlirTypeIDAllocatorAllocateTypeID(MlirTypeIDAllocator);
MlirPass mlirCreateExternalPass(MlirTypeID, MlirStringRef, MlirStringRef, MlirStringRef,
                                MlirStringRef, intptr_t, MlirDialectHandle *,
                                MlirExternalPassCallbacks, void *);
void mlirExternalPassSignalFailure(MlirExternalPass);
void mlirOpPassManagerAddOwnedPass(MlirOpPassManager, MlirPass);
void mlirEmitError(MlirLocation, const char *);

intptr_t sdyMeshAttrGetDeviceIdsSize(MlirAttribute);
int64_t sdyMeshAttrGetDeviceIdsElem(MlirAttribute, intptr_t);
intptr_t sdyMeshAttrGetAxesSize(MlirAttribute);
MlirAttribute sdyMeshAttrGetAxesElem(MlirAttribute, intptr_t);
MlirStringRef sdyMeshAxisAttrGetName(MlirAttribute);
int64_t sdyMeshAxisAttrGetSize(MlirAttribute);
intptr_t sdyTensorShardingAttrGetDimShardingsSize(MlirAttribute);
MlirAttribute sdyTensorShardingAttrGetDimShardingsElem(MlirAttribute, intptr_t);
intptr_t sdyDimensionShardingAttrGetAxesSize(MlirAttribute);
MlirAttribute sdyDimensionShardingAttrGetAxesElem(MlirAttribute, intptr_t);
MlirStringRef sdyAxisRefAttrGetName(MlirAttribute);
MlirAttribute sdyAxisRefAttrGetSubAxisInfo(MlirAttribute);
int64_t sdySubAxisInfoAttrGetPreSize(MlirAttribute);
int64_t sdySubAxisInfoAttrGetSize(MlirAttribute);
MlirAttribute sdySubAxisInfoAttrGet(MlirContext, int64_t, int64_t);
MlirAttribute sdyAxisRefAttrGet(MlirContext, MlirStringRef, MlirAttribute);
MlirAttribute sdyDimensionShardingAttrGet(MlirContext, intptr_t, const MlirAttribute *, bool,
                                          int64_t);
MlirAttribute sdyTensorShardingAttrGet(MlirContext, MlirAttribute, intptr_t, const MlirAttribute *,
                                       intptr_t, const MlirAttribute *);
}

// What the passes here share.
namespace mlir_help {

using Shape = std::vector<int64_t>;

inline std::string_view name(MlirOperation op) {
  return mlirIdentifierStr(mlirOperationGetName(op)).view();
}
Shape shape(MlirType tensor);
MlirType tensor(const Shape &shape, MlirType element);
Shape numbers(MlirOperation op, std::string_view attribute); // of a DenseI64ArrayAttr
MlirNamedAttribute named(MlirContext context, std::string_view name, MlirAttribute attribute);
std::vector<MlirOperation> operations(MlirBlock block);
std::vector<MlirBlock> blocks(MlirOperation op);
// All operations inside op, outer ones first.
std::vector<MlirOperation> within(MlirOperation op);
// A new operation before another one, with its location.
MlirOperation insert_before(MlirOperation at, std::string_view name,
                            std::vector<MlirValue> operands, std::vector<MlirType> results,
                            std::vector<MlirNamedAttribute> attributes);
// The operation that makes the value, if it has that name; else its ptr is null.
MlirOperation made_by(MlirValue value, std::string_view name);
// The operation of a module with that symbol; its ptr is null if there is none.
MlirOperation function_named(MlirOperation module, std::string_view wanted);
std::string_view callee(MlirOperation op); // of func.call and enzyme.batch
// Puts the values in place of the operation's results, and removes it.
void replace(MlirOperation op, const std::vector<MlirValue> &values);

} // namespace mlir_help
