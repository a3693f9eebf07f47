"""Perform works one after another in directories of their own, as the engine does, without it."""

from neuralpath.runs.place import WEIGHTS, Place
from neuralpath.runs.work import with_needs


def perform(works, folder):
    results, places = {}, {}
    for work in with_needs(works):
        places[work.name] = folder / work.name
        places[work.name].mkdir(parents=True)

        def find(needed, which):
            return places[needed.name] / WEIGHTS / f"{which}.safetensors"

        results[work] = work.perform(Place(places[work.name], find))
    return results
