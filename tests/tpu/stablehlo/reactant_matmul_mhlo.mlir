// The same as reactant_matmul.mlir after Shardy's export (Reactant: shardy_passes=:to_mhlo_shardings).
module @reactant_mul attributes {mhlo.num_partitions = 16 : i64, mhlo.num_replicas = 1 : i64} {
  func.func @main(%arg0: tensor<1024x4096xbf16> {mhlo.sharding = "{devices=[4,4]<=[4,4]T(1,0)}"}, %arg1: tensor<2048x1024xbf16> {mhlo.sharding = "{devices=[4,4]<=[4,4]T(1,0)}"}) -> (tensor<2048x4096xbf16> {mhlo.sharding = "{devices=[4,4]<=[4,4]T(1,0)}"}) {
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<1024x4096xbf16>) -> tensor<4096x1024xbf16>
    %1 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<2048x1024xbf16>) -> tensor<1024x2048xbf16>
    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : (tensor<4096x1024xbf16>, tensor<1024x2048xbf16>) -> tensor<4096x2048xbf16>
    %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<4096x2048xbf16>) -> tensor<2048x4096xbf16>
    return %3 : tensor<2048x4096xbf16>
  }
}
