// x * y, for x of 8x6 and y of 6x4.
// In the form that Reactant documents for Julia arrays (reversed sizes, transposes at both ends), but
// written by jax 0.10.2, not by Reactant.
module @reactant_matmul attributes {mhlo.num_partitions = 1 : i64, mhlo.num_replicas = 1 : i64} {
  func.func public @main(%arg0: tensor<6x8xf32>, %arg1: tensor<4x6xf32>) -> (tensor<4x8xf32>) {
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<6x8xf32>) -> tensor<8x6xf32>
    %1 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<8x6xf32>, tensor<6x4xf32>) -> tensor<8x4xf32>
    %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
    return %3 : tensor<4x8xf32>
  }
}
