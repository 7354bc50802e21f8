#include "distributed.h"

#include "errors.h"

// As in Reactant's API.cpp; times that are not positive leave XLA's defaults.
struct ClientOptions {
  int32_t node_id, rpc_seconds, init_seconds, shutdown_minutes, heartbeat_seconds;
  bool use_compression, shutdown_on_destruction, poll_for_error, recoverable;
};

struct ServiceOptions {
  int32_t num_nodes;
  bool recoverable;
  int32_t heartbeat_seconds, register_minutes, shutdown_minutes;
};

EXPORT DistributedClient *GetDistributedRuntimeClientWithOptions(const char *address,
                                                                 const ClientOptions *options) {
  Request request("make_distributed_client");
  request.text(address).number(options->node_id).number(options->rpc_seconds);
  request.number(options->init_seconds).number(60 * options->shutdown_minutes);
  request.number(options->heartbeat_seconds).number(options->use_compression);
  request.number(options->shutdown_on_destruction);
  return new DistributedClient{held(Reply(request).number())};
}

EXPORT DistributedService *GetDistributedRuntimeServiceWithOptions(const char *address,
                                                                   const ServiceOptions *options) {
  Request request("start_service");
  request.text(address).number(options->num_nodes).number(options->recoverable);
  request.number(options->heartbeat_seconds).number(60 * options->register_minutes);
  request.number(60 * options->shutdown_minutes);
  return new DistributedService{held(Reply(request).number())};
}

EXPORT void distributed_runtime_client_connect(DistributedClient *client) {
  Reply(Request("connect").number(client->held->number));
}
EXPORT void distributed_runtime_client_shutdown(DistributedClient *client) {
  Reply(Request("shutdown").number(client->held->number));
}
EXPORT void distributed_runtime_service_shutdown(DistributedService *service) {
  Reply(Request("shutdown").number(service->held->number));
}
EXPORT void free_distributed_runtime_client(DistributedClient *client) { delete client; }
EXPORT void free_distributed_runtime_service(DistributedService *service) { delete service; }
