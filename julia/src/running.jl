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

"""The bits of floats."""
function bits_of(x)
    bits = sizeof(Reactant.unwrapped_eltype(x)) == 1 ? UInt8 : UInt16
    return Reactant.Ops.bitcast_convert(Reactant.TracedRArray{bits, ndims(x)}, x)
end

"""An array like `x` of which each device has the whole, short floats as their bits. Collective."""
function replicated(x::Held)
    # XLA's CPU backend sends these floats as float32, which makes signalling NaNs quiet. In one
    # program it would send them first, and make bits of what arrives.
    if x.type <: CrossingAsBits
        x = only(run(gathering(bits_of, x, x.sharding), x))
    end
    whole = ArraySharding(x.sharding.mesh, [String[] for _ in x.shape])
    return only(run(gathering(identity_of, x, whole), x))
end

const GATHERING = Dict{Any, Compiled}()

"""The program of one argument like `x` whose result lies as `s`."""
function gathering(f, x::Held, s::ArraySharding)
    from = x.sharding
    key = (f, x.type, x.shape, from.mesh.ids, from.mesh.sizes, from.mesh.names, from.spec)
    return get!(GATHERING, key) do
        trace = Trace("gather", f, (;), ("tuple", 0), Any[s], from.mesh)
        compiled = compile_trace(trace, [Input(x.type, x.shape, from)], "")
        settle(compiled, (s,))
        compiled
    end
end
