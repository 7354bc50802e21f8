// Five steps of x -> x / 2 + 1 and their number, with 64-bit types.
module @jit_steps attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<8xf64>) -> (tensor<8xf64>, tensor<i64>) {
    %zero = stablehlo.constant dense<0> : tensor<i64>
    %0:2 = stablehlo.while(%x = %arg0, %i = %zero) : tensor<8xf64>, tensor<i64>
    cond {
      %five = stablehlo.constant dense<5> : tensor<i64>
      %1 = stablehlo.compare LT, %i, %five, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %half = stablehlo.constant dense<0.5> : tensor<8xf64>
      %ones = stablehlo.constant dense<1.0> : tensor<8xf64>
      %one = stablehlo.constant dense<1> : tensor<i64>
      %1 = stablehlo.multiply %x, %half : tensor<8xf64>
      %2 = stablehlo.add %1, %ones : tensor<8xf64>
      %3 = stablehlo.add %i, %one : tensor<i64>
      stablehlo.return %2, %3 : tensor<8xf64>, tensor<i64>
    }
    return %0#0, %0#1 : tensor<8xf64>, tensor<i64>
  }
}
