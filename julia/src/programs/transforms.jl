fft(x) = Reactant.Ops.fft(x; type = "FFT", length = [size(x, 2)])

fft2(x) = Reactant.Ops.fft(x; type = "FFT", length = [size(x, 1), size(x, 2)])

# Julia has no Fourier transform of its own: by its definition.
fft(x::Array) = x * fourier_matrix(eltype(x), size(x, 2))

fft2(x::Array) = fourier_matrix(eltype(x), size(x, 1)) * fft(x)

function fourier_matrix(T, n)
    return T[cispi(-2 * (i * j % n) / n) for i in 0:(n - 1), j in 0:(n - 1)]
end
