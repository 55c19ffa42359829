"""A simulation of gateways, a router and engines, fed with measured times: parts of `benchmarks.simulate`."""
