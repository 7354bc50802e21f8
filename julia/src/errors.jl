"""
    Wrong(kind, message)

An error with a plain message: what was required, what was got, what to do. `kind` is the name
of a class in pyreactant.base.errors; Python raises that.
"""
struct Wrong <: Exception
    kind::String
    message::String
end

Base.showerror(io::IO, error::Wrong) = print(io, error.message)

"""What a program threw while it was traced, and the place in the user's files."""
struct Thrown <: Exception
    error::Any
    place::String
end

Base.showerror(io::IO, thrown::Thrown) = print(io, text_of(thrown.error), '\n', thrown.place)

"""
    explain(exception, backtrace) -> (kind, message, backtrace)

What Python reports of an exception: its kind ("" unless it is ours), its text, and its backtrace
("" without one).
"""
function explain(@nospecialize(error), @nospecialize(backtrace))
    kind = error isa Wrong ? error.kind : ""
    trace = backtrace === nothing ? "" : sprint(Base.show_backtrace, backtrace)
    return kind, printable(text_of(error)), printable(trace)
end

text_of(error::StackOverflowError) = "StackOverflowError: a function calls itself without end"
text_of(@nospecialize(error)) = sprint(showerror, error)

"""
A text whose control characters are escaped: a terminal would obey them, and Python refuses bytes
that are not UTF-8.
"""
function printable(text::AbstractString)
    return sprint() do io
        for c in text
            isvalid(c) && (isprint(c) || c in ('\n', '\t')) ?
                print(io, c) :
                print(io, escape_string(string(c)))
        end
    end
end

"""
The user's file and line that threw, or the function that did; "" where neither is known.

`frames` are those of the exception. Reactant compiles what it traces without line numbers, so for
the real one these lead nowhere; `calls` are the functions that it was in, with the lines at which
they are defined (utils.jl:696).
"""
function place_of(@nospecialize(f), frames, calls::Vector)
    home = file_of(f)
    home === nothing && return ""
    file, line = home
    folder = joinpath(dirname(file), "")
    for frame in frames
        at = string(frame.file)
        startswith(at, folder) && return "thrown at $at:$(frame.line)"
    end
    for call in Iterators.reverse(calls)
        startswith(call.file, folder) || continue
        return "thrown in $(call.f_name), which is at $(call.file):$(call.line)"
    end
    return "thrown in $(nameof(f)), which is at $file:$line"
end

"""The file and the line of a user's function; nothing for those of Julia and of PyReactant."""
function file_of(@nospecialize(f))
    f isa Union{Function, Type} || return nothing
    Base.moduleroot(parentmodule(f)) in (Base, Core, PyReactant) && return nothing
    method = first(methods(f))
    path = Base.find_source_file(String(method.file)) # of code from a text there is none
    return path === nothing ? nothing : (path, Int(method.line))
end
