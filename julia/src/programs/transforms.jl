fft(x) = Reactant.Ops.fft(x; type = "FFT", length = [size(x, 2)])

fft2(x) = Reactant.Ops.fft(x; type = "FFT", length = [size(x, 1), size(x, 2)])
