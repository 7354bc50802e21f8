// pyreactant: {"program": "perceptron", "julia": "PyReactant.Programs.perceptron", "static": {}, "results": 0, "versions": {"julia": "1.12.6", "PyReactant": "0.1.0", "Reactant": "0.2.280", "PythonCall": "0.9.34"}}
// Recorded by tests/julia/record.py from Reactant's own sources.
module @reactant_traced attributes {mhlo.num_partitions = 1 : i64, mhlo.num_replicas = 1 : i64} {
  func.func @main(%arg0: tensor<16x16xf32>, %arg1: tensor<16x16xf32>, %arg2: tensor<16xf32>, %arg3: tensor<16x16xf32>, %arg4: tensor<16xf32>) -> tensor<16x16xf32> {
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %1 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %2 = stablehlo.transpose %arg3, dims = [1, 0] : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %3 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %4 = stablehlo.reshape %arg2 : (tensor<16xf32>) -> tensor<16x1xf32>
    %5 = stablehlo.transpose %4, dims = [1, 0] : (tensor<16x1xf32>) -> tensor<1x16xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : (tensor<1x16xf32>) -> tensor<16x16xf32>
    %7 = stablehlo.add %3, %6 : tensor<16x16xf32>
    %8 = stablehlo.tanh %7 : tensor<16x16xf32>
    %9 = stablehlo.dot_general %8, %2, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %10 = stablehlo.reshape %arg4 : (tensor<16xf32>) -> tensor<16x1xf32>
    %11 = stablehlo.transpose %10, dims = [1, 0] : (tensor<16x1xf32>) -> tensor<1x16xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1] : (tensor<1x16xf32>) -> tensor<16x16xf32>
    %13 = stablehlo.add %9, %12 : tensor<16x16xf32>
    %14 = stablehlo.transpose %13, dims = [1, 0] : (tensor<16x16xf32>) -> tensor<16x16xf32>
    return %14 : tensor<16x16xf32>
  }
}
