# One of two processes that take everything from the supervisor's variables: a Julia program that
# knows of no Python, so it loads none.
using PyReactant
using Reactant
using Test

const COUNT, INDEX = PyReactant.initialize()

@test (COUNT, INDEX) == (2, parse(Int, ENV["PYREACTANT_PROCESS_INDEX"]))
@test PyReactant.platform() == "cpu"
rows = PyReactant.devices()
@test length(rows) == 4
try
    PyReactant.initialize() # it has joined
    @test false
catch error
    @test first(PyReactant.explain(error, nothing)) == "StateError"
end

# Arrays of Julia's own, there and back.
mesh = PyReactant.mesh(Tuple(row[1] for row in rows), (4,), ("x",))
mine = Tuple((row[1],) for row in rows if row[5])
s = PyReactant.sharding(mesh, ("x",))
x = PyReactant.from_blocks("float64", (4,), s, mine, ([Float64(id)] for (id,) in mine)...)
whole = zeros(4)
PyReactant.gather(x, whole)
@test whole == [row[1] for row in rows]

@test !any(id -> id.name == "PythonCall", keys(Base.loaded_modules))
@test first.(PyReactant.versions()) == ("julia", "PyReactant", "Reactant")
println("all is well")
