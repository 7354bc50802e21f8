"""The expressions of a file of the snapshot that `wanted` takes, from inside modules too."""
function expressions(path, wanted)
    found = Any[]
    walk(x) = nothing
    function walk(x::Expr)
        if x.head in (:toplevel, :block, :module) ||
                (x.head === :macrocall && x.args[1] === GlobalRef(Core, Symbol("@doc")))
            foreach(walk, x.args)
        elseif wanted(x)
            push!(found, x)
        end
    end
    walk(Meta.parseall(read(joinpath(SNAPSHOT, "src", path), String)))
    return found
end

defines(x, names) = x.head === :struct ?
    bare(x.args[2]) in names :
    x.head in (:function, :(=)) && bare(x.args[1]) in names

bare(x::Symbol) = x
bare(x::Expr) = x.head === :. ? x.args[2].value : bare(x.args[1])
bare(x) = nothing

module Original
    module XLA
        abstract type AbstractDevice end
        device_ordinal(d) = d
        @enum OpShardingType_T Replicated Maximal TupleOf Other
        module OpShardingType
            using ..XLA: Replicated, Maximal, Other, OpShardingType_T
            const T = OpShardingType_T
        end
    end
    module Reactant
        module Compiler end
    end
    module Sharding
        using ..XLA: XLA
        using ..Reactant: Reactant
    end
end

const INDICES = (:get_number_of_ways_dim_sharded, :sharding_to_concrete_array_indices)
struct_only(names) = x -> x.head === :struct && bare(x.args[2]) in names

# What XLA says of a sharding is plain data here.
@eval Original.XLA struct OpSharding end
@eval Original.XLA struct HloSharding end
for x in expressions(
        "xla/Sharding.jl",
        x -> defines(x, (:CondensedOpSharding, INDICES..., :generate_device_list_from_iota_tile)),
    )
    occursin("op_sharding::OpSharding)", string(x.args[1])) && continue
    occursin("sharding::OpSharding", string(x.args[1])) && continue
    occursin("HloSharding", string(x.args[1])) && continue
    Core.eval(Original.XLA, x)
end
for x in expressions(
        "Sharding.jl",
        x -> defines(x, (:Mesh, :AbstractSharding, :NamedSharding)) || x.head === :abstract,
    )
    occursin("DimsSharding", string(x.args[1])) && continue
    occursin("Replicated", string(x.args[1])) && continue
    occursin("client", string(x.args[1])) && continue
    Core.eval(Original.Sharding, x)
end
for x in expressions(
        "Sharding.jl",
        x -> x.head in (:(=), :function) && bare(x.args[1]) in (:size, :length, :ndims, :in),
    )
    occursin("Mesh", string(x.args[1])) && Core.eval(Original.Sharding, x)
end

same_mesh(a, b) = a.device_ids == b.device_ids &&
    a.logical_device_ids == b.logical_device_ids &&
    a.axis_names == b.axis_names &&
    a.axis_sizes == b.axis_sizes

@testset "meshes" begin
    for k in 0:20, (sizes, names) in MESHES
        ids = k == 0 ? collect(IDS) : collect(shuffled(IDS, k))
        symbols = Symbol.(names)
        ours, theirs = reshape(copy(ids), sizes), reshape(copy(ids), sizes)
        @test same_mesh(
            Reactant.Sharding.Mesh(ours, symbols),
            Original.Sharding.Mesh(theirs, symbols),
        )
        @test ours == theirs # sorted in place, both
        four = (sort(ids), Int64.(sortperm(sortperm(ids)) .- 1), symbols, sizes)
        @test same_mesh(Reactant.Sharding.Mesh(four...), Original.Sharding.Mesh(four...))
    end
end

@testset "named shardings" begin
    m = mesh(IDS, (2, 2, 2), ("x", "y", "z")).reactant
    original = Original.Sharding.Mesh(
        m.device_ids,
        m.logical_device_ids,
        m.axis_names,
        m.axis_sizes,
    )
    for n in 1:3, spec in specs(("x", "y", "z"), n)
        ours = Reactant.Sharding.NamedSharding(m, spec)
        theirs = Original.Sharding.NamedSharding(original, spec)
        for field in (:partition_spec, :is_closed, :priority, :subaxes)
            @test getfield(ours, field) == getfield(theirs, field)
        end
    end
    for bad in (
            (PythonCall.pyconvert(Any, PythonCall.pylist(["x"])),),
            (3,),
            ("x", "x"),
            (("x", 3),),
        )
        @test_throws Exception Reactant.Sharding.NamedSharding(m, bad)
        @test_throws Exception Original.Sharding.NamedSharding(original, bad)
    end
end

"""The original's form of what XLA says."""
function condensed(op)
    kind = op.replicated ? Original.XLA.Replicated : Original.XLA.Other
    return Original.XLA.CondensedOpSharding(
        Original.XLA.OpSharding(),
        kind,
        op.replicate_on_last_tile_dim,
        op.tile_assignment,
    )
end

@testset "slices" begin
    for (sizes, names) in MESHES, k in 0:3, n in 1:3, spec in specs(names, n)
        m = mesh(k == 0 ? IDS : shuffled(IDS, k), sizes, names)
        op = Reactant.Sharding.to_hlo(to_reactant(PyReactant.padded(sharding(m, spec), n)), n)
        for shape in (Tuple(8 * (1:n)), Tuple(fill(5, n)), Tuple(7:(6 + n)))
            for ranks in (0:7, m.reactant.logical_device_ids)
                ours = Reactant.XLA.sharding_to_concrete_array_indices(op, shape, ranks)
                theirs = Original.XLA.sharding_to_concrete_array_indices(
                    condensed(op),
                    shape,
                    ranks,
                )
                @test ours[2] == theirs[2]
                @test map(s -> map(collect, s), ours[1]) ==
                    map(s -> map(collect, s), collect(theirs[1]))
            end
        end
    end
end
