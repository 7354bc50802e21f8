#include "arrays.h"

#include <algorithm>
#include <cstdlib>

#include "errors.h"

SharedSharding on_one(Device *device) {
  Sharding sharding{{device}, device->default_memory->kind, {}};
  return std::make_shared<Sharding>(std::move(sharding));
}

static size_t bytes_of(int64_t dtype) {
  switch (dtype) {
  case 1: case 2: case 6: case 19: case 20: case 23: case 24: case 25: return 1;
  case 3: case 7: case 10: case 16: return 2;
  case 4: case 8: case 11: return 4;
  case 5: case 9: case 12: case 15: return 8;
  case 18: return 16;
  }
  fail("no element type has the number " + std::to_string(dtype));
}

EXPORT Array *ifrt_client_make_single_shard_array_from_host_buffer(
    Client *client, void *data, int dtype, int rank, const int64_t *shape, int, Device *device,
    const char *) {
  Numbers sizes(shape, shape + rank);
  size_t size = bytes_of(dtype);
  for (int64_t n : sizes) size *= n;
  Request request("put");
  request.number(client->held->number).number(dtype).numbers(sizes).number(device->id);
  request.bytes(data, size);
  return new Array{client, held(Reply(request).number()), dtype, sizes, on_one(device)};
}

EXPORT Array *ifrt_client_assemble_array_from_single_shards(Client *client, int32_t rank,
                                                            const int64_t *shape,
                                                            SharedSharding *sharding, int32_t count,
                                                            Array **parts, int32_t) {
  Numbers sizes(shape, shape + rank), numbers;
  for (int n = 0; n < count; ++n) numbers.push_back(parts[n]->held->number);
  Request request("assemble");
  request.number(client->held->number).number(parts[0]->dtype).numbers(sizes);
  request.numbers((*sharding)->ids());
  (*sharding)->hlo.write(request);
  request.numbers(numbers);
  return new Array{client, held(Reply(request).number()), parts[0]->dtype, sizes, *sharding};
}

EXPORT Array **ifrt_array_disassemble_into_single_device_arrays(Array *array, int32_t,
                                                                int32_t all, int32_t *count) {
  if (all && std::any_of(array->sharding->devices.begin(), array->sharding->devices.end(),
                         [](Device *device) { return !device->addressable; }))
    fail("an array cannot be taken apart on devices of other processes");
  Reply reply(Request("disassemble").number(array->held->number));
  *count = reply.number();
  auto parts = new Array *[*count];
  for (int n = 0; n < *count; ++n) {
    HeldPointer part = held(reply.number());
    Device *device = array->client->device(reply.number());
    parts[n] = new Array{array->client, part, array->dtype, reply.numbers(), on_one(device)};
  }
  return parts;
}

EXPORT void ifrt_array_copy_to_host_buffer(Array *array, void *data) {
  Reply(Request("fetch").number(array->held->number)).bytes_into(data);
}

EXPORT Array *ifrt_copy_array(Array *array) {
  auto copy = new Array(*array);
  copy->held = held(Reply(Request("copy").number(array->held->number)).number());
  return copy;
}

EXPORT void ifrt_free_array(Array *array) { delete array; }
EXPORT int64_t ifrt_array_ndims(Array *array) { return array->shape.size(); }
EXPORT int ifrt_array_eltype(Array *array) { return array->dtype; }
EXPORT Client *ifrt_array_to_client(Array *array) { return array->client; }
EXPORT SharedSharding *ifrt_array_to_sharding(Array *array) {
  return new SharedSharding(array->sharding);
}
EXPORT int64_t *ifrt_array_shape(Array *array) { // Julia keeps it, as with the real library
  auto shape = new int64_t[array->shape.size()];
  std::copy(array->shape.begin(), array->shape.end(), shape);
  return shape;
}
