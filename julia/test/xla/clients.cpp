#include "clients.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "distributed.h"
#include "errors.h"

Device *Client::device(int64_t id) const {
  for (auto &device : devices)
    if (device->id == id) return device.get();
  fail("no device has the id " + std::to_string(id));
}

namespace {

std::vector<Device *> addressable(const Client *client) {
  std::vector<Device *> found;
  for (auto &device : client->devices)
    if (device->addressable) found.push_back(device.get());
  return found;
}

std::unique_ptr<Device> read_device(Client *client, Reply &reply) {
  auto device = std::make_unique<Device>();
  device->client = client;
  device->id = reply.number();
  device->process = reply.number();
  device->addressable = reply.number();
  device->local_id = reply.number();
  device->kind = reply.text();
  std::string standard = reply.text();
  std::vector<std::string> kinds(reply.number());
  for (auto &kind : kinds) kind = reply.text();
  if (kinds.empty()) kinds.push_back(standard);
  for (auto &kind : kinds) {
    device->memories.push_back(std::make_unique<Memory>(Memory{device.get(), {kind}}));
    device->memory_list.push_back(device->memories.back().get());
    if (kind == standard) device->default_memory = device->memory_list.back();
  }
  return device;
}

} // namespace

EXPORT Client *ifrt_make_pjrt_cpu_client(uint8_t, int node, int nodes, void *distributed,
                                         const char **) {
  Request request("make_client");
  request.number(node).number(nodes);
  request.number(distributed ? static_cast<DistributedClient *>(distributed)->held->number : 0);
  const char *flags = std::getenv("XLA_FLAGS"); // the child may be older than their change
  request.text(flags ? flags : "");
  Reply reply(request);
  auto client = new Client;
  client->held = held(reply.number());
  client->platform = reply.text();
  client->process = reply.number();
  for (int64_t n = reply.number(); n > 0; --n) client->devices.push_back(read_device(client, reply));
  return client;
}

// Devices point to their client and may outlive it in Julia, so only the child forgets it.
EXPORT void ifrt_FreeClient(Client *client) { client->held.reset(); }

EXPORT int ifrt_client_device_count(Client *client) { return client->devices.size(); }
EXPORT int ifrt_client_addressable_device_count(Client *client) {
  return addressable(client).size();
}
EXPORT void ifrt_client_devices(Client *client, Device **out) {
  for (auto &device : client->devices) *out++ = device.get();
}
EXPORT void ifrt_client_addressable_devices(Client *client, Device **out) {
  for (auto device : addressable(client)) *out++ = device;
}
EXPORT void ifrt_client_all_devices(Client *client, Device **out) {
  ifrt_client_devices(client, out);
}
EXPORT Device *ifrt_client_lookup_device(Client *client, int id) { return client->device(id); }
EXPORT Device *ifrt_client_lookup_addressable_device(Client *client, int local_id) {
  for (auto device : addressable(client))
    if (device->local_id == local_id) return device;
  fail("no addressable device has the local id " + std::to_string(local_id));
}
EXPORT int ifrt_client_process_index(Client *client) { return client->process; }
EXPORT char *ifrt_ClientGetPlatformName(Client *client) { return copy_of(client->platform); }

EXPORT int64_t ifrt_DeviceGetGlobalDeviceId(Device *device) { return device->id; }
EXPORT char *ifrt_DeviceGetKind(Device *device) { return copy_of(device->kind); }
EXPORT Client *ifrt_DeviceToClient(Device *device) { return device->client; }
EXPORT bool ifrt_DeviceIsAddressable(Device *device) { return device->addressable; }
EXPORT int64_t ifrt_DeviceGetLocalHardwareId(Device *device) { return device->local_id; }
EXPORT Memory *ifrt_DeviceGetDefaultMemory(Device *device) { return device->default_memory; }
EXPORT Memory **ifrt_DeviceGetMemories(Device *device, int32_t *size) {
  *size = device->memory_list.size();
  return device->memory_list.data();
}
EXPORT void ifrt_device_get_allocator_stats(Device *, int64_t *stats) {
  std::memset(stats, 0, 11 * sizeof *stats); // XLA's CPU devices count nothing
}

EXPORT MemoryKind *ifrt_MemoryGetMemoryKind(Memory *memory) { return &memory->kind; }
EXPORT char *ifrt_MemoryToString(Memory *memory) { return copy_of(*memory->kind.name); }
EXPORT char *ifrt_MemoryKindToString(MemoryKind *kind) {
  return copy_of(kind->name.value_or("(default)"));
}
EXPORT bool ifrt_MemoryKindsAreEqual(MemoryKind *a, MemoryKind *b) { return a->name == b->name; }
EXPORT MemoryKind *ifrt_memory_kind_from_string(const char *name) {
  return new MemoryKind{std::string(name)};
}
EXPORT MemoryKind *ifrt_memory_kind_with_optional_memory_space() { return new MemoryKind; }
EXPORT bool ifrt_memory_kind_has_value(MemoryKind *kind) { return kind->name.has_value(); }
