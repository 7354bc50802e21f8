"""As EnumX writes it: a module with the type T and its values."""
module PrecisionConfig
@enum T DEFAULT HIGH HIGHEST
end

const PRECISION = Ref(PrecisionConfig.DEFAULT)

# Read while a program is traced; around a call it changes nothing.
function with_config(f; dot_general_precision = missing, convolution_precision = missing)
    before = PRECISION[]
    dot_general_precision === missing || (PRECISION[] = dot_general_precision)
    try
        return f()
    finally
        PRECISION[] = before
    end
end
