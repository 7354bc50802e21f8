// Programs: compiled from the text of an MLIR module, and executed, by the child.
#include "executables.h"

#include "errors.h"
#include "mlir.h"

// The results of an execution, whose blocks XLA may still compute.
struct Future {
  std::vector<HeldPointer> results;
};

// The text of a compiled module. There is no more of it here.
struct HloModule {
  std::string text;
};

static std::string text_of(MlirModule module) {
  std::string text;
  mlirOperationPrint(
      mlirModuleGetOperation(module),
      [](MlirStringRef part, void *to) { static_cast<std::string *>(to)->append(part.view()); },
      &text);
  return text;
}

static std::vector<Executable::Result> read_results(Client *client, Reply &reply) {
  std::vector<Device *> devices;
  for (int64_t id : reply.numbers()) devices.push_back(client->device(id));
  std::vector<Executable::Result> results(reply.number());
  for (auto &result : results) {
    result.dtype = reply.number();
    result.shape = reply.numbers();
    auto hlo = HloSharding::read(reply);
    MemoryKind kind = devices[0]->default_memory->kind;
    result.sharding = std::make_shared<Sharding>(Sharding{devices, kind, hlo});
  }
  return results;
}

EXPORT Executable *ifrt_compile_with_proto(Client *client, MlirModule module, const char *options,
                                           size_t size) {
  Request request("compile");
  request.number(client->held->number).text(text_of(module)).bytes(options, size);
  Reply reply(request);
  HeldPointer program = held(reply.number());
  return new Executable{client, program, read_results(client, reply)};
}

EXPORT void ifrt_loaded_executable_dtor(Executable *executable) { delete executable; }
EXPORT Client *ifrt_loaded_executable_client(Executable *executable) { return executable->client; }

EXPORT void ifrt_loaded_executable_execute(Executable *executable, int count, Array **arguments,
                                           uint8_t *donatable, int results, Array **out,
                                           uint8_t *futures, Future **future) {
  if (results != (int)executable->results.size())
    fail("the program has " + std::to_string(executable->results.size()) + " results, not " +
         std::to_string(results));
  Numbers given, may;
  for (int n = 0; n < count; ++n) {
    given.push_back(arguments[n]->held->number);
    may.push_back(donatable[n]);
  }
  Request request("execute");
  Reply reply(request.number(executable->held->number).numbers(given).numbers(may));
  *futures = true;
  *future = new Future;
  reply.number(); // how many
  for (auto &result : executable->results) {
    auto array = new Array{executable->client, held(reply.number()), result.dtype, result.shape,
                           result.sharding};
    (*future)->results.push_back(array->held);
    *out++ = array;
  }
}

// Julia never frees futures and awaits each of them, if at all, before it reads.
EXPORT void ifrt_future_await(Future *future) {
  if (future->results.empty()) return;
  Numbers results;
  for (auto &result : future->results) results.push_back(result->number);
  future->results.clear();
  Reply(Request("wait").numbers(results));
}
EXPORT uint8_t ifrt_future_is_ready(Future *future) { return future->results.empty(); }
EXPORT void ifrt_free_future(Future *future) { delete future; }

static void write_shardings(const std::vector<HloSharding> &shardings, HloSharding **out,
                            int32_t count) {
  if (count != (int32_t)shardings.size())
    fail("the program has " + std::to_string(shardings.size()) + " shardings, not " +
         std::to_string(count));
  for (auto &sharding : shardings) *out++ = new HloSharding(sharding);
}

EXPORT void ifrt_loaded_executable_get_parameter_shardings(Executable *executable,
                                                           HloSharding **out, int32_t count) {
  Reply reply(Request("parameter_shardings").number(executable->held->number));
  std::vector<HloSharding> shardings(reply.number());
  for (auto &sharding : shardings) sharding = HloSharding::read(reply);
  write_shardings(shardings, out, count);
}

EXPORT void ifrt_loaded_executable_get_output_shardings(Executable *executable, HloSharding **out,
                                                        int32_t count) {
  std::vector<HloSharding> shardings;
  for (auto &result : executable->results) shardings.push_back(result.sharding->hlo);
  write_shardings(shardings, out, count);
}

EXPORT void ifrt_loaded_executable_get_hlo_modules(Executable *executable, HloModule **out,
                                                   int32_t *count) {
  Reply reply(Request("hlo_text").number(executable->held->number));
  *count = reply.number();
  for (int n = 0; n < *count; ++n) out[n] = new HloModule{reply.text()};
}
EXPORT char *HloModuleToString(HloModule *module, int32_t) { return copy_of(module->text); }
EXPORT void FreeHloModule(HloModule *module) { delete module; }
