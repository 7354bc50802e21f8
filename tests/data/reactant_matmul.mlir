// pyreactant: {"program": "matmul", "julia": "*", "static": {}, "results": 0, "versions": {"julia": "1.12.6", "PyReactant": "0.1.0", "Reactant": "0.2.280", "PythonCall": "0.9.34"}}
// Recorded by tests/julia/record.py from Reactant's own sources.
module @reactant_traced attributes {mhlo.num_partitions = 1 : i64, mhlo.num_replicas = 1 : i64} {
  func.func @main(%arg0: tensor<6x8xf32>, %arg1: tensor<4x6xf32>) -> tensor<4x8xf32> {
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<6x8xf32>) -> tensor<8x6xf32>
    %1 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<8x6xf32>, tensor<6x4xf32>) -> tensor<8x4xf32>
    %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
    return %3 : tensor<4x8xf32>
  }
}
