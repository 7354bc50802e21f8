# What several files use: functions for programs, a mesh whose devices are not in order, an array.
using PyReactant: compile, mesh, sharding

module Bodies
    double(x) = 2 .* x
    product(x, y) = x * y'
    pair(x, y) = (x .+ y, sum(x))
    scaled(x; by, times = 1) = x .* (by * times)
    twice_the_same(x) = (x, x)
    back(x) = x
    writes(x) = (x .= 0; x)
    constant(x) = [1.0 2.0; 3.0 4.0]
    number(x) = 7
    by_scalar(x, a) = a * x
    text_of(x) = "text"
    turned(x) = x'
    throws(x) = error("no luck today")
    not_a_function = 3
end
@eval PyReactant const TestBodies = $Bodies

const M = mesh(shuffled(IDS, 2), (2, 4), ("x", "y"))
const S = sharding(M, ("x", "y"))
const X = place(reshape(Float64.(1:64), 8, 8), S)

body(name, args, out = nothing; precision = "", static = ()) = compile(
    "PyReactant.TestBodies.$name",
    "",
    args,
    out,
    precision,
    static,
)
