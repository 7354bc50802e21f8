// Shardy's shardings by axes of a mesh, and XLA's by tiles.
#include <algorithm>
#include <numeric>

#include "errors.h"
#include "mlir.h"
#include "shardings.h"

namespace {

struct Axis {
  std::string name;
  int64_t size;
};

struct Mesh {
  std::vector<Axis> axes;
  Numbers devices; // by position in the mesh, row-major

  explicit Mesh(MlirAttribute attribute) {
    int64_t count = 1;
    for (intptr_t n = 0; n < sdyMeshAttrGetAxesSize(attribute); ++n) {
      MlirAttribute axis = sdyMeshAttrGetAxesElem(attribute, n);
      axes.push_back({std::string(sdyMeshAxisAttrGetName(axis).view()),
                      sdyMeshAxisAttrGetSize(axis)});
      count *= axes.back().size;
    }
    for (intptr_t n = 0; n < sdyMeshAttrGetDeviceIdsSize(attribute); ++n)
      devices.push_back(sdyMeshAttrGetDeviceIdsElem(attribute, n));
    if (devices.empty()) {
      devices.resize(count);
      std::iota(devices.begin(), devices.end(), 0);
    }
  }

  size_t position(std::string_view name) const {
    for (size_t n = 0; n < axes.size(); ++n)
      if (axes[n].name == name) return n;
    fail("the mesh has no axis " + std::string(name));
  }
};

// A part of a mesh's axis, which spans all of it unless it is a sub-axis: of the axis' position,
// divided by `after`, the remainder by `size`.
struct Part {
  size_t axis;
  int64_t size, after;
};
using Parts = std::vector<std::vector<Part>>; // by dimension, major to minor

int64_t tiles(const std::vector<Part> &parts) {
  int64_t product = 1;
  for (auto &part : parts) product *= part.size;
  return product;
}

Part whole(const Mesh &mesh, size_t axis) { return {axis, mesh.axes[axis].size, 1}; }

Part read_part(const Mesh &mesh, MlirAttribute axis) {
  size_t position = mesh.position(sdyAxisRefAttrGetName(axis).view());
  MlirAttribute sub = sdyAxisRefAttrGetSubAxisInfo(axis);
  if (!sub.ptr) return whole(mesh, position);
  int64_t before = sdySubAxisInfoAttrGetPreSize(sub), size = sdySubAxisInfoAttrGetSize(sub);
  return {position, size, mesh.axes[position].size / before / size};
}

// Copies are the last dimension. As in XLA (HloSharding::PartialTile), they are in ascending order.
HloSharding by_tiles(const Mesh &mesh, const Parts &dimensions) {
  HloSharding sharding;
  int64_t count = 1;
  for (auto &parts : dimensions) {
    sharding.dimensions.push_back(tiles(parts));
    count *= sharding.dimensions.back();
  }
  if (count == 1) return {};
  sharding.kind = HloSharding::tiled;
  std::vector<Numbers> of_tile(count);
  for (size_t place = 0; place < mesh.devices.size(); ++place) {
    Numbers coordinates(mesh.axes.size());
    for (size_t n = mesh.axes.size(), rest = place; n-- > 0; rest /= mesh.axes[n].size)
      coordinates[n] = rest % mesh.axes[n].size;
    int64_t tile = 0;
    for (auto &parts : dimensions)
      for (auto &part : parts)
        tile = tile * part.size + coordinates[part.axis] / part.after % part.size;
    of_tile[tile].push_back(mesh.devices[place]);
  }
  for (auto &devices : of_tile) {
    std::sort(devices.begin(), devices.end());
    sharding.devices.insert(sharding.devices.end(), devices.begin(), devices.end());
  }
  if (of_tile[0].size() > 1) {
    sharding.replicate_on_last = true;
    sharding.dimensions.push_back(of_tile[0].size());
  }
  return sharding;
}

// Finds axes that give the wanted sharding, by trying the orders that fit its tiles.
bool find(const Mesh &mesh, const HloSharding &wanted, size_t rank, std::vector<bool> &used,
          Parts &dimensions) {
  if (dimensions.size() == rank + 1) return false;
  auto &parts = dimensions.back();
  if (tiles(parts) == wanted.dimensions[dimensions.size() - 1]) {
    if (dimensions.size() == rank) {
      if (by_tiles(mesh, dimensions) == wanted) return true;
    } else {
      dimensions.emplace_back();
      if (find(mesh, wanted, rank, used, dimensions)) return true;
      dimensions.pop_back();
    }
  }
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    if (used[axis] || mesh.axes[axis].size == 1) continue;
    int64_t product = tiles(dimensions.back()) * mesh.axes[axis].size;
    if (wanted.dimensions[dimensions.size() - 1] % product) continue;
    used[axis] = true;
    dimensions.back().push_back(whole(mesh, axis));
    if (find(mesh, wanted, rank, used, dimensions)) return true;
    dimensions.back().pop_back();
    used[axis] = false;
  }
  return false;
}

} // namespace

EXPORT HloSharding *hloShardingFromTensorShardingAttr(MlirAttribute attribute,
                                                      MlirAttribute mesh_attribute) {
  Mesh mesh(mesh_attribute);
  Parts dimensions;
  for (intptr_t n = 0; n < sdyTensorShardingAttrGetDimShardingsSize(attribute); ++n) {
    MlirAttribute dimension = sdyTensorShardingAttrGetDimShardingsElem(attribute, n);
    dimensions.emplace_back();
    for (intptr_t k = 0; k < sdyDimensionShardingAttrGetAxesSize(dimension); ++k)
      dimensions.back().push_back(
          read_part(mesh, sdyDimensionShardingAttrGetAxesElem(dimension, k)));
  }
  return new HloSharding(by_tiles(mesh, dimensions));
}

EXPORT MlirAttribute hloShardingToTensorShardingAttr(MlirContext context,
                                                     const HloSharding *sharding,
                                                     MlirAttribute mesh_name,
                                                     MlirAttribute mesh_attribute, int64_t rank,
                                                     const bool *closed, const int64_t *priority) {
  Mesh mesh(mesh_attribute);
  Parts dimensions(1);
  if (sharding->kind == HloSharding::replicated || rank == 0) {
    dimensions.resize(rank);
  } else {
    std::vector<bool> used(mesh.axes.size());
    if (!find(mesh, *sharding, rank, used, dimensions))
      fail("no whole axes of the mesh give the sharding " + sharding->text());
  }
  std::vector<MlirAttribute> parts;
  for (int64_t n = 0; n < rank; ++n) {
    std::vector<MlirAttribute> axes;
    for (auto &part : dimensions[n])
      axes.push_back(sdyAxisRefAttrGet(context, mesh.axes[part.axis].name, mlirAttributeGetNull()));
    parts.push_back(sdyDimensionShardingAttrGet(context, axes.size(), axes.data(), closed[n],
                                                priority[n] > 0 ? priority[n] : -1));
  }
  if (mlirAttributeIsAString(mesh_name))
    mesh_name = mlirFlatSymbolRefAttrGet(context, mlirStringAttrGetValue(mesh_name));
  return sdyTensorShardingAttrGet(context, mesh_name, rank, parts.data(), 0, nullptr);
}
