// Reactant's form of z = x * y for Julia arrays x (4096, 1024) and y (1024, 2048) on a mesh 4x4,
// both cut ("x", "y"); written by hand from Reactant.jl's documented output: tensors have the
// arrays' dimensions reversed, transposes stand at entry and exit, num_partitions is an i64.
module @reactant_mul attributes {mhlo.num_partitions = 16 : i64, mhlo.num_replicas = 1 : i64} {
  sdy.mesh @mesh = <["x"=4, "y"=4]>
  func.func @main(%arg0: tensor<1024x4096xbf16> {enzymexla.memory_effects = [], sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>}, %arg1: tensor<2048x1024xbf16> {enzymexla.memory_effects = [], sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>}) -> (tensor<2048x4096xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>}) attributes {enzymexla.memory_effects = []} {
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<1024x4096xbf16>) -> tensor<4096x1024xbf16>
    %1 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<2048x1024xbf16>) -> tensor<1024x2048xbf16>
    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] : (tensor<4096x1024xbf16>, tensor<1024x2048xbf16>) -> tensor<4096x2048xbf16>
    %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<4096x2048xbf16>) -> tensor<2048x4096xbf16>
    return %3 : tensor<2048x4096xbf16>
  }
}
