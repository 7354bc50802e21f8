#include "shardings.h"

#include <algorithm>

#include "errors.h"

bool HloSharding::operator==(const HloSharding &other) const {
  return kind == other.kind && replicate_on_last == other.replicate_on_last &&
         dimensions == other.dimensions && devices == other.devices;
}

static std::string joined(const Numbers &numbers) {
  std::string text;
  for (int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

std::string HloSharding::text() const {
  if (kind == replicated) return "{replicated}";
  if (kind == maximal) return "{maximal device=" + joined(devices) + "}";
  return "{devices=[" + joined(dimensions) + "]" + joined(devices) +
         (replicate_on_last ? " last_tile_dim_replicate}" : "}");
}

void HloSharding::write(Request &request) const {
  request.number(kind).number(replicate_on_last).numbers(dimensions).numbers(devices);
}

HloSharding HloSharding::read(Reply &reply) {
  HloSharding sharding;
  sharding.kind = static_cast<Kind>(reply.number());
  sharding.replicate_on_last = reply.number();
  sharding.dimensions = reply.numbers();
  sharding.devices = reply.numbers();
  return sharding;
}

Numbers Sharding::ids() const {
  Numbers ids;
  for (Device *device : devices) ids.push_back(device->id);
  return ids;
}

// OpSharding. Devices are always listed, so the short form by iota is never used.

EXPORT void free_op_sharding(HloSharding *sharding) { delete sharding; }
EXPORT int32_t op_sharding_to_op_sharding_type(HloSharding *sharding) { return sharding->kind; }
EXPORT bool op_sharding_replicate_on_last_tile_dim(HloSharding *sharding) {
  return sharding->replicate_on_last;
}
EXPORT bool op_sharding_has_last_tile_dims(HloSharding *) { return false; }
EXPORT bool op_sharding_has_iota_reshape_dims(HloSharding *) { return false; }
EXPORT int32_t op_sharding_iota_reshape_dims_size(HloSharding *) { return 0; }
EXPORT void op_sharding_iota_reshape_dims(HloSharding *, int32_t *) {}
EXPORT bool op_sharding_has_iota_transpose_perm(HloSharding *) { return false; }
EXPORT int32_t op_sharding_iota_transpose_perm_size(HloSharding *) { return 0; }
EXPORT void op_sharding_iota_transpose_perm(HloSharding *, int32_t *) {}
EXPORT int32_t op_sharding_tile_assignment_dimensions_size(HloSharding *sharding) {
  return sharding->dimensions.size();
}
EXPORT void op_sharding_tile_assignment_dimensions(HloSharding *sharding, int32_t *out) {
  std::copy(sharding->dimensions.begin(), sharding->dimensions.end(), out);
}
EXPORT int32_t op_sharding_tile_assignment_devices_size(HloSharding *sharding) {
  return sharding->devices.size();
}
EXPORT void op_sharding_tile_assignment_devices(HloSharding *sharding, int32_t *out) {
  std::copy(sharding->devices.begin(), sharding->devices.end(), out);
}

// HloSharding

EXPORT void free_hlo_sharding(HloSharding *sharding) { delete sharding; }
EXPORT HloSharding *hlo_sharding_from_op_sharding(HloSharding *sharding) {
  return new HloSharding(*sharding);
}
EXPORT HloSharding *hlo_sharding_to_op_sharding(HloSharding *sharding) {
  return new HloSharding(*sharding);
}
EXPORT char *hlo_sharding_to_string(HloSharding *sharding) { return copy_of(sharding->text()); }
EXPORT bool hlo_sharding_is_tuple(HloSharding *) { return false; }
EXPORT bool hlo_sharding_is_manual(HloSharding *) { return false; }
EXPORT bool hlo_sharding_is_unknown(HloSharding *) { return false; }
EXPORT bool hlo_sharding_is_replicated(HloSharding *sharding) {
  return sharding->kind == HloSharding::replicated;
}
EXPORT bool hlo_sharding_is_maximal(HloSharding *sharding) {
  return sharding->kind == HloSharding::maximal;
}
EXPORT bool hlo_sharding_is_tiled(HloSharding *sharding) {
  return sharding->kind == HloSharding::tiled;
}
EXPORT bool hlo_sharding_replicate_on_last_tile_dim(HloSharding *sharding) {
  return sharding->replicate_on_last;
}
EXPORT int32_t hlo_sharding_tile_assignment_dimensions_size(HloSharding *sharding) {
  return sharding->dimensions.size();
}
EXPORT int32_t hlo_sharding_tile_assignment_devices_size(HloSharding *sharding) {
  return sharding->devices.size();
}
EXPORT void hlo_sharding_tile_assignment_dimensions(HloSharding *sharding, int64_t *out, int32_t) {
  std::copy(sharding->dimensions.begin(), sharding->dimensions.end(), out);
}
EXPORT void hlo_sharding_tile_assignment_devices(HloSharding *sharding, int64_t *out, int32_t) {
  std::copy(sharding->devices.begin(), sharding->devices.end(), out);
}
EXPORT bool hlo_sharding_check_eq(HloSharding *a, HloSharding *b) { return *a == *b; }
EXPORT bool hlo_sharding_check_eq_ignoring_metadata(HloSharding *a, HloSharding *b) {
  return *a == *b;
}

// IFRT's shardings. Julia holds a pointer to a shared one.

EXPORT SharedSharding *ifrt_sharding_from_xla_hlo_sharding(Client *, Device **devices,
                                                           int32_t count, MemoryKind *memory_kind,
                                                           HloSharding *hlo) {
  Sharding sharding{{devices, devices + count}, *memory_kind, *hlo};
  return new SharedSharding(std::make_shared<Sharding>(std::move(sharding)));
}
EXPORT void free_ifrt_sharding(SharedSharding *sharding) { delete sharding; }
EXPORT HloSharding *ifrt_sharding_to_xla_hlo_sharding(SharedSharding *sharding) {
  return new HloSharding((*sharding)->hlo);
}
EXPORT bool ifrt_sharding_is_single_device_sharding(SharedSharding *sharding) {
  return (*sharding)->devices.size() == 1;
}
EXPORT bool ifrt_sharding_is_fully_replicated(SharedSharding *sharding) {
  return (*sharding)->devices.size() == 1 || (*sharding)->hlo.kind == HloSharding::replicated;
}
EXPORT char *ifrt_sharding_to_string(SharedSharding *sharding) {
  return copy_of((*sharding)->hlo.text() + " on devices " + joined((*sharding)->ids()));
}
EXPORT int32_t ifrt_sharding_devices_size(SharedSharding *sharding) {
  return (*sharding)->devices.size();
}
EXPORT void ifrt_sharding_to_device_list(SharedSharding *sharding, Device **out) {
  std::copy((*sharding)->devices.begin(), (*sharding)->devices.end(), out);
}
EXPORT void ifrt_sharding_to_index_domains(SharedSharding *sharding, int64_t *sizes, int32_t rank,
                                           int64_t *origins, int64_t *shapes) {
  const HloSharding &hlo = (*sharding)->hlo;
  for (size_t device = 0; device < (*sharding)->devices.size(); ++device) {
    int64_t *origin = origins + device * rank, *shape = shapes + device * rank;
    std::fill(origin, origin + rank, 0);
    std::copy(sizes, sizes + rank, shape);
    if (hlo.kind != HloSharding::tiled) continue;
    auto found = std::find(hlo.devices.begin(), hlo.devices.end(), (int64_t)device);
    int64_t tile = found - hlo.devices.begin();
    for (int64_t n = hlo.dimensions.size() - 1; n >= 0; --n) {
      int64_t tiles = hlo.dimensions[n], place = tile % tiles;
      tile /= tiles;
      if (n >= rank) continue; // copies
      int64_t each = (sizes[n] + tiles - 1) / tiles;
      origin[n] = std::min(place * each, sizes[n]);
      shape[n] = std::min(each, sizes[n] - origin[n]);
    }
  }
}
