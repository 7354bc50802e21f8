// Pass pipelines. What exists in this MLIR runs as it is written; of Enzyme's passes a few exist
// here in a small form and the others are left out.
#include "passes.h"

#include <dlfcn.h>

#include <algorithm>

#include "errors.h"

namespace {

using Run = std::string (*)(MlirOperation);

// A gradient is the only thing that leaves other operations of Enzyme than enzyme.batch.
std::string refuse_enzyme(MlirOperation module) {
  for (MlirOperation op : mlir_help::within(module))
    if (mlir_help::name(op).substr(0, 7) == "enzyme.")
      return std::string(mlir_help::name(op)) + ": this library lacks Enzyme's passes";
  return "";
}

std::string drop_attributes(MlirOperation module) {
  for (MlirOperation op : mlir_help::within(module)) {
    std::vector<std::string> names;
    for (intptr_t n = 0; n < mlirOperationGetNumAttributes(op); ++n)
      names.emplace_back(mlirIdentifierStr(mlirOperationGetAttribute(op, n).name).view());
    for (auto &name : names)
      if (name.substr(0, 10) == "enzymexla.") mlirOperationRemoveAttributeByName(op, name);
  }
  return "";
}

struct Own {
  std::string_view name;
  Run run;
};
const Own own[] = {{"enzyme-batch", expand_batches},
                   {"enzyme-hlo-generate-td", simplify},
                   {"enzyme", refuse_enzyme},
                   {"inline", inline_calls},
                   {"drop-unsupported-attributes", drop_attributes}};

// They optimise, or lower kernels and calls of libraries, of which programs here have none.
const std::string_view left_out[] = {
    "affine-cfg",
    "arith-raise",
    "canonicalize-scf-for",
    "convert-llvm-to-cf",
    "delinearize-indexing",
    "enzyme-hlo-remove-transform",
    "enzyme-lift-cf-to-scf",
    "enzyme-simplify-math",
    "func.func(affine-loop-invariant-code-motion)",
    "func.func(canonicalize-loops)",
    "func.func(kernelcast)",
    "libdevice-funcs-raise",
    "llvm-to-affine-access",
    "llvm-to-memref-access",
    "lower-enzymexla-blas",
    "lower-enzymexla-lapack",
    "lower-enzymexla-linalg",
    "lower-enzymexla-math",
    "lower-enzymexla-mpi",
    "lower-impulse-trace-ops",
    "lower-jit",
    "lower-kernel",
    "lower-triton",
    "mark-func-memory-effects",
    "optimize-communication",
    "propagate-constant-bounds",
    "raise-affine-to-stablehlo",
    "raise-triton-custom-call",
    "remove-duplicate-func-def",
    "remove-unnecessary-enzyme-ops",
    "simplify-affine-exprs",
    "sort-memory",
    "sroa-wrappers",
    "transform-interpreter",
};

// The passes of a pipeline, with their options; commas inside of braces or parentheses do not
// separate.
std::vector<std::string> elements(std::string_view pipeline) {
  std::vector<std::string> found(1);
  int depth = 0;
  for (char c : pipeline) {
    depth += (c == '{' || c == '(') - (c == '}' || c == ')');
    if (c == ',' && depth == 0)
      found.emplace_back();
    else
      found.back() += c;
  }
  return found;
}

struct Pass {
  const Own *own;
};

void run_pass(MlirOperation op, MlirExternalPass pass, void *data) {
  std::string error = static_cast<Pass *>(data)->own->run(op);
  if (error.empty()) return;
  mlirEmitError(mlirOperationGetLocation(op), error.c_str());
  mlirExternalPassSignalFailure(pass);
}

void add_own(MlirOpPassManager manager, const Own &own) {
  static MlirTypeIDAllocator ids = mlirTypeIDAllocatorCreate();
  MlirExternalPassCallbacks calls{
      [](void *) {}, [](void *data) { delete static_cast<Pass *>(data); }, nullptr,
      [](void *data) -> void * { return new Pass(*static_cast<Pass *>(data)); }, run_pass};
  mlirOpPassManagerAddOwnedPass(
      manager, mlirCreateExternalPass(mlirTypeIDAllocatorAllocateTypeID(ids), own.name, own.name,
                                      own.name, std::string_view(""), 0, nullptr, calls,
                                      new Pass{&own}));
}

using Add = MlirLogicalResult (*)(MlirOpPassManager, MlirStringRef, MlirStringCallback, void *);

MlirLogicalResult add(const char *function, MlirOpPassManager manager, MlirStringRef pipeline,
                      MlirStringCallback report, void *data) {
  auto real = reinterpret_cast<Add>(dlsym(RTLD_NEXT, function));
  for (const std::string &element : elements(pipeline.view())) {
    std::string_view name = std::string_view(element).substr(0, element.find('{'));
    if (std::find(std::begin(left_out), std::end(left_out), name) != std::end(left_out)) continue;
    auto found = std::find_if(std::begin(own), std::end(own),
                              [&](const Own &own) { return own.name == name; });
    if (found != std::end(own))
      add_own(manager, *found);
    else if (!real(manager, std::string_view(element), report, data).value)
      return {0};
  }
  return {1};
}

} // namespace

// These two stand before the functions of the same names in MLIR's C interface.
EXPORT MlirLogicalResult mlirOpPassManagerAddPipeline(MlirOpPassManager manager,
                                                      MlirStringRef pipeline,
                                                      MlirStringCallback report, void *data) {
  return add("mlirOpPassManagerAddPipeline", manager, pipeline, report, data);
}
EXPORT MlirLogicalResult mlirParsePassPipeline(MlirOpPassManager manager, MlirStringRef pipeline,
                                               MlirStringCallback report, void *data) {
  return add("mlirParsePassPipeline", manager, pipeline, report, data);
}

EXPORT void addSdyPropagationPipeline(MlirOpPassManager manager, uint8_t keep_rules,
                                      uint8_t conservative, uint8_t, uint8_t, uint8_t, uint8_t,
                                      uint8_t) {
  std::string pipeline = "sdy-propagation-pipeline{";
  pipeline += keep_rules ? "keep-sharding-rules=true " : "keep-sharding-rules=false ";
  pipeline += conservative ? "conservative-propagation=true}" : "conservative-propagation=false}";
  std::string error;
  auto keep = [](MlirStringRef part, void *to) { static_cast<std::string *>(to)->append(part.view()); };
  if (!mlirOpPassManagerAddPipeline(manager, std::string_view(pipeline), keep, &error).value)
    fail(error);
}

// Enzyme's patterns: "enzyme-hlo-generate-td" above stands for all of them.
EXPORT void enzymexlaGetTransformPassesList(const void *, char **main, char **lower) {
  *main = copy_of("");
  *lower = copy_of("");
}
EXPORT void enzymexlaFreeTransformPassesList(char *list) { free(list); }
