# PyReactantStart: of what is logged while packages load only two warnings are kept back.
using PyReactantStart: WithoutImports
using Test: TestLogger
using Base.CoreLogging: with_logger

module ReactantPythonCallExt
    says() = (@warn("Failed to import jax"); @error("broken"); @info("loaded"))
end
module OtherExt
    says() = (@warn("no driver"); @debug("not asked for"))
end

@testset "one extension's warnings are kept back, and nothing else" begin
    kept = TestLogger()
    with_logger(WithoutImports(kept)) do
        ReactantPythonCallExt.says()
        OtherExt.says()
    end
    @test [record.message for record in kept.logs] == ["broken", "loaded", "no driver"]
end
