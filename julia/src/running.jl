"""
    run(compiled, args...) -> tuple of Held

Run a program on the arrays of its arguments; gives those of its results. On CPU the results are
complete afterwards; elsewhere they may still be in flight.
"""
run(c::Compiled, args...) = c(args...)

function (c::Compiled)(@nospecialize(args...))
    check_arguments(c, args)
    account(c.bytes)
    results = without_python(c.thunk, map(fresh, args)...)
    return Tuple(Held[hold(results[i], o) for (i, o) in enumerate(c.outputs)])
end

function check_arguments(c::Compiled, @nospecialize(args::Tuple))
    n = length(c.inputs)
    if length(args) != n
        throw(Wrong("InvalidArgumentError", "'$(c.name)' takes $n arrays, got $(length(args))"))
    end
    for (i, x) in enumerate(args)
        wanted = c.inputs[i]
        x isa Held &&
            x.type === wanted.type &&
            x.shape == wanted.shape &&
            x.sharding == wanted.sharding &&
            continue
        throw(Wrong(
            "InvalidArgumentError",
            "argument $(i - 1) of '$(c.name)': compiled for " *
                "$(element_name(wanted.type))$(collect(wanted.shape)) on $(wanted.sharding), " *
                "got $x",
        ))
    end
    return nothing
end

# Where a program puts one argument into another, Reactant's thunk exchanges the buffers of the
# arrays that it gets (compiler/Codegen.jl:1248-1313). So each call gets other arrays over the same
# buffers.
function fresh(x::Held)
    info = x.sharding.mesh.reactant === nothing ? nothing : x.array.sharding
    return wrap(x.type, Val(length(x.shape)), x.array.data, x.shape, info)
end

# Numbers become 0-d arrays, and each result gets the sharding that Python knows. Reactant's is
# XLA's, on a mesh of its own (compiler/Codegen.jl:1441-1456).
function hold(@nospecialize(result), o::Output)
    array = wrap(o.type, Val(length(o.shape)), result.data, o.shape, o.info)
    return Held(array, o.type, o.shape, o.sharding, o.blocks, nothing)
end

function wrap(::Type{T}, ::Val{N}, data, shape, info) where {T, N}
    info === nothing && return Reactant.ConcreteIFRTArray{T, N}(data, shape)
    return Reactant.ConcreteIFRTArray{T, N}(data, shape, info)
end

"""The body of `reshard`, whose Python names it."""
identity_of(x) = x

"""The body of the programs before and after it, for elements that cross as their bits."""
function same_bits(x; dtype)
    T = element_type(dtype)
    x isa Number && return Reactant.Ops.bitcast_convert(T, x)
    return Reactant.Ops.bitcast_convert(Reactant.TracedRArray{T, ndims(x)}, x)
end

# XLA's CPU backend sends these floats as float32, which makes signalling NaNs quiet.
function short_floats_as_bits(x)
    T = Reactant.unwrapped_eltype(x)
    T <: CrossingAsBits || return x
    bits = sizeof(T) == 1 ? UInt8 : UInt16
    return Reactant.Ops.bitcast_convert(Reactant.TracedRArray{bits, ndims(x)}, x)
end

const REPLICATORS = Dict{Any, Compiled}()

"""The program that gives each device the whole of arrays like `x`, short floats as their bits."""
function replicator(x::Held)
    key = (
        x.type,
        x.shape,
        x.sharding.mesh.ids,
        x.sharding.mesh.sizes,
        x.sharding.mesh.names,
        x.sharding.spec,
    )
    return get!(REPLICATORS, key) do
        whole = ArraySharding(x.sharding.mesh, [String[] for _ in x.shape])
        trace = Trace(
            "gather",
            short_floats_as_bits,
            (;),
            ("tuple", 0),
            Any[whole],
            x.sharding.mesh,
        )
        compiled = compile_trace(trace, [Input(x.type, x.shape, x.sharding)], "")
        settle(compiled, (whole,))
        compiled
    end
end
