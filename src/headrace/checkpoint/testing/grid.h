// A tensor as a list of all of its elements' places: the slow model that boxes are held against.
// For tests only. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "headrace/checkpoint/box.h"

namespace headrace::checkpoint {

// The place of each element of a box in a tensor of that shape, in row-major order of the box.
inline std::vector<uint64_t> PlacesIn(Extents shape, BoxView box) {
  std::vector<uint64_t> places = {0};
  for (size_t k = 0; k < shape.size(); ++k) {
    std::vector<uint64_t> longer;
    for (uint64_t place : places)
      for (uint64_t i = 0; i < box.length[k]; ++i)
        longer.push_back(place * shape[k] + box.offset[k] + i);
    places = std::move(longer);
  }
  return places;
}

// How many of the boxes hold each element.
inline std::vector<int> Coverage(Extents shape, const std::vector<Box>& boxes) {
  std::vector<int> counts(PlacesIn(shape, Box::Whole(shape)).size());
  for (const Box& box : boxes)
    for (uint64_t place : PlacesIn(shape, box)) ++counts[place];
  return counts;
}

}  // namespace headrace::checkpoint
