#include "transport/verbs/region.h"

#include "transport/verbs/endpoint.h"

namespace stdchk::transport::verbs {

VerbsRegion::~VerbsRegion() {
  endpoint_.forget(*this);
  deregister(parts_);
}

RegionTable VerbsRegion::table() const {
  RegionTable table{number_, parts_.part_bytes, {}};
  for (const ibv_mr* const each : parts_.mrs) table.keys.push_back(each->rkey);
  return table;
}

}  // namespace stdchk::transport::verbs
