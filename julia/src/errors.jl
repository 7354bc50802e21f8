"""
    Wrong(kind, message)

An error with a plain message: what was required, what was got, what to do. `kind` is the name
of a class in pyreactant._errors; Python raises that.
"""
struct Wrong <: Exception
    kind::String
    message::String
end

Base.showerror(io::IO, error::Wrong) = print(io, error.message)

"""
    explain(exception) -> (kind, message)

What Python reports of an exception: its kind ("" unless it is ours) and its text, without the
backtrace.
"""
explain(error::Wrong) = (error.kind, error.message)
explain(error) = ("", sprint(showerror, error))
