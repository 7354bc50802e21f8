// How the library reports errors to Julia, and the strings that it hands out.
#pragma once

#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

// Throws a Julia exception, which leaves by longjmp: hold no lock, own as little as possible.
[[noreturn]] void fail(const std::string &message);

// Julia frees these with free().
char *copy_of(const std::string &text);
