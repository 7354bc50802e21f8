// PyReactant.Programs.perceptron for n = 16: tanh(x w + c) v + d.
// In the form that Reactant documents for Julia arrays (reversed sizes, transposes at both ends), but
// written by jax 0.10.2, not by Reactant.
module @reactant_perceptron attributes {mhlo.num_partitions = 1 : i64, mhlo.num_replicas = 1 : i64} {
  func.func public @main(%arg0: tensor<16x16xf32>, %arg1: tensor<16x16xf32>, %arg2: tensor<16xf32>, %arg3: tensor<16x16xf32>, %arg4: tensor<16xf32>) -> (tensor<16x16xf32>) {
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %1 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %2 = stablehlo.transpose %arg3, dims = [1, 0] : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %3 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %4 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<16xf32>) -> tensor<1x16xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<1x16xf32>) -> tensor<16x16xf32>
    %6 = stablehlo.add %3, %5 : tensor<16x16xf32>
    %7 = stablehlo.tanh %6 : tensor<16x16xf32>
    %8 = stablehlo.dot_general %7, %2, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %9 = stablehlo.broadcast_in_dim %arg4, dims = [1] : (tensor<16xf32>) -> tensor<1x16xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<1x16xf32>) -> tensor<16x16xf32>
    %11 = stablehlo.add %8, %10 : tensor<16x16xf32>
    %12 = stablehlo.transpose %11, dims = [1, 0] : (tensor<16x16xf32>) -> tensor<16x16xf32>
    return %12 : tensor<16x16xf32>
  }
}
