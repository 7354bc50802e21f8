using PyReactant: ELEMENTS, element_type, to_julia, to_numpy!

const SHAPES = (
    (),
    (1,),
    (7,),
    (0,),
    (3, 0),
    (5, 3),
    (16, 16),
    (17, 33),
    (64, 100),
    (129, 65),
    (3, 4, 5),
    (20, 1, 30),
    (33, 18, 3),
    (2, 3, 4, 5),
    (1, 1, 1, 2),
)

"""Some numbers of a type, no two neighbours alike."""
function numbers(T::DataType, @nospecialize(shape::Dims))
    bytes = UInt8[(37 * i + i ÷ 256) % 251 for i in 1:(prod(shape) * sizeof(T))]
    T === Bool && (bytes .%= 2)
    x = Array{T, length(shape)}(undef, shape)
    GC.@preserve x unsafe_copyto!(Ptr{UInt8}(pointer(x)), pointer(bytes), length(bytes))
    return x
end

bit_equal(@nospecialize(x), @nospecialize(y)) = size(x) == size(y) && bits(x) == bits(y)

@testset "there and back: $name" for name in sort!(collect(keys(ELEMENTS)))
    T = element_type(name)
    # What NumPy has only from ml_dtypes crosses as integers with the same bits.
    crossing = T <: Reactant.ReactantFloat8 ? UInt8 : T === Reactant.BFloat16 ? UInt16 : T
    for shape in SHAPES, order in ("C", "F")
        x = numbers(crossing, shape)
        moved = to_julia(numpy_of(x, order), T)
        @test moved isa Array{T} && bit_equal(moved, x)
        back = as_numpy(np.zeros(shape; dtype = numpy_dtype(crossing), order))
        to_numpy!(back, moved)
        @test bit_equal(back, x)
    end
end

@testset "strides" begin
    x = np.arange(7 * 8 * 9; dtype = "float32").reshape(7, 8, 9)
    views = (
        x,
        x.T,
        x.transpose(1, 0, 2),
        x.transpose(2, 0, 1),
        x[pyslices((1, 6, 2), (0, 8, 3))],
        np.flip(x, 0),
        np.flip(x, 2),
        np.flip(x.T, 1),
        np.broadcast_to(x[0], (4, 8, 9)),
        np.asfortranarray(x)[pyslices((0, 7, 3), (1, 8, 2))],
    )
    for view in views
        block = as_numpy(view)
        moved = to_julia(block, Float32)
        @test moved == block
        out = numpy_of(zeros(Float32, size(block)), "C")
        to_numpy!(out, moved)
        @test out == block
    end
end

@testset "steps between elements that are no multiple of their size" begin
    parts = PythonCall.pylist([PythonCall.pytuple(("a", "i1")), PythonCall.pytuple(("b", "<i4"))])
    fields = np.zeros(6; dtype = np.dtype(parts))
    fields["b"] = np.arange(6; dtype = "int32")
    @test to_julia(as_numpy(fields["b"]), Int32) == 0:5
end

@testset "writing between: nothing beside the elements is touched" begin
    room = np.full((9, 10), 7; dtype = "int16")
    out = as_numpy(room[pyslices((1, 8, 2), (2, 9, 3))])
    to_numpy!(out, zeros(Int16, size(out)))
    @test sum(as_numpy(room)) == 7 * (90 - length(out))
end

@testset "large planes, at any place in memory" begin
    for (rows, columns, first_one) in (
            (2048, 2048, 0),
            (2048, 1030, 3),
            (1500, 1500, 0),
            (2064, 1040, 1),
        )
        x = reshape(Float32.(1:(rows * columns)), rows, columns)
        room = np.zeros(rows * columns + first_one; dtype = "float32")
        out = as_numpy(room[pyslices((first_one, nothing, nothing))].reshape(rows, columns))
        to_numpy!(out, x)
        @test out == x
        @test to_julia(out, Float32) == x
    end
end

@testset "read-only memory can be read, not written" begin
    x = np.arange(6; dtype = "float64")
    x.setflags(; write = false)
    @test to_julia(as_numpy(x), Float64) == 0:5
    kind, message = wrong(() -> to_numpy!(as_numpy(x), zeros(6)))
    @test kind == "InvalidArgumentError"
    @test occursin("read-only", message)
end

@testset "wrong memory" begin
    kind, message = wrong(() -> to_julia(zeros(Float64, 3), Float32))
    @test kind == "InvalidArgumentError"
    @test occursin("a block of float32 was needed, got elements of Julia's type Float64", message)
    kind, message = wrong(() -> to_numpy!(zeros(Float32, 2, 3), zeros(Float32, 3, 2)))
    @test occursin("shape (3, 2) was needed, got (2, 3)", message)
    kind, message = wrong(() -> element_type("float128"))
    @test kind == "DTypeError"
    @test occursin("float128 is not held by Reactant; convert", message)
    # int16 memory is not bfloat16's, nor is int32's for anything but itself
    @test first(wrong(() -> to_julia(zeros(Int16, 3), Reactant.BFloat16))) == "InvalidArgumentError"
end
