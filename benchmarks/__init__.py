"""Speed and accuracy beside other libraries, on real data, printed with the targets.

make bench            python -m benchmarks.speed      needs no data
make bench-accuracy   python -m benchmarks.accuracy   needs GEOGP_DATA; skips what is absent
                      python -m benchmarks.coverage   needs no data; made-up worlds whose truth is known
"""
