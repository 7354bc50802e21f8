# Compile these methods with the package, so that the first array and program do not wait for it:
# only methods that are compiled once for all types. Nothing runs, because no device may start.
for (f, types) in (
        (initialize, (String, Int, Int, Tuple, Bool, String, Float64, Float64)),
        (start_platform, (String, Int)),
        (devices, ()),
        (mesh, (Tuple, Tuple, Tuple)),
        (sharding, (DeviceMesh, Tuple)),
        (from_blocks, (String, Tuple, ArraySharding, Tuple, Vararg{AbstractArray})),
        (
            transfer,
            (DataType, Dims, ArraySharding, Vector{Int64}, Vector{Any}, Vector{Vector{Int64}}),
        ),
        (place_blocks, (DataType, Dims, ArraySharding, Vector{Any}, Vector{Vector{Int64}})),
        (shards, (Held,)),
        (read_shard, (Held, Int, AbstractArray)),
        (copy_shard, (Held, Int, AbstractArray)),
        (read_part, (Any, DataType, Dims, AbstractArray)),
        (gather, (Held, AbstractArray)),
        (copy_whole, (Held, AbstractArray)),
        (lent, (Function, Tuple, Vector{Any})),
        (body_of, (String, String)),
        (lower, (String, String, String, Tuple, Tuple, Tuple, String, Tuple)),
        (description, (Lowered,)),
        (write_text, (Trace, Vector{Input}, String)),
        (placeholders, (Vector{Input},)),
        (placeholder, (Input,)),
        (arguments, (Trace, Tuple)),
        (results, (Trace, Any)),
        (tracing, (Later, Trace)),
        (compile, (Lowered,)),
        (compile_trace, (Trace, Vector{Input}, String)),
        (compile_arrays, (Tuple,)),
        (outputs, (Compiled,)),
        (settle, (Compiled, Tuple)),
        (check_arguments, (Compiled, Tuple)),
        (hold, (Any, Output)),
        (explain, (Wrong, Nothing)),
    )
    precompile(f, types)
end
for width in (UInt8, UInt16, UInt32, UInt64, NTuple{2, UInt64})
    precompile(copy_axes!, (Ptr{width}, Ptr{width}, Vector{Axis}))
end
