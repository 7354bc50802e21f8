// Reactant's form of z = x * y for Julia arrays x (8, 16) and y (16, 4), with shardings of XLA; the
// sizes are reversed. Written by hand: tensors are transposed at entry and exit.
module @reactant_mul attributes {mhlo.num_partitions = 8 : i64, mhlo.num_replicas = 1 : i64} {
  func.func @main(%arg0: tensor<16x8xf32> {enzymexla.memory_effects = [], mhlo.sharding = "{devices=[1,2,4]<=[8] last_tile_dim_replicate}"}, %arg1: tensor<4x16xf32> {mhlo.sharding = "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"}) -> (tensor<4x8xf32> {mhlo.sharding = "{devices=[4,2]<=[2,4]T(1,0)}"}) {
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<16x8xf32>) -> tensor<8x16xf32>
    %1 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<4x16xf32>) -> tensor<16x4xf32>
    %2 = stablehlo.custom_call @Sharding(%0) {mhlo.sharding = "{devices=[2,4]<=[8]}"} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    %3 = stablehlo.dot_general %2, %1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
    %4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
    return %4 : tensor<4x8xf32>
  }
}
