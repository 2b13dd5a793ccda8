#include "fuse/bridge.h"

#include "core/base/limits.h"

namespace stdchk::mount {

Bridge::Bridge(client::Filesystem& filesystem, Clock& clock, const Attributes& root,
               BridgeOptions options)
    : filesystem_(filesystem),
      clock_(clock),
      options_(options),
      nodes_(root),
      cache_(nodes_),
      follower_(cache_),
      refused_(clock),
      set_id_(filesystem, exchange_),
      choice_(filesystem, clock, nodes_, exchange_, options.read_mode),
      entries_(filesystem, nodes_),
      names_(filesystem, nodes_, entries_, refused_, options.writeback),
      attributes_(filesystem, clock, nodes_, entries_, set_id_, cache_, follower_),
      xattrs_(filesystem, nodes_, entries_, choice_, set_id_, refused_, options.writeback),
      files_({filesystem, nodes_, cache_, choice_, refused_, set_id_, counts_, exchange_},
             options.commit_unseen_writers),
      directories_(filesystem, nodes_, entries_) {}

Bridge::~Bridge() { stop(); }

void Bridge::start(fuse_session* session) {
  cache_.start(session);
  follower_.start();
  files_.start(session);
  filesystem_.set_cache_events(
      {[this](FileId directory, const std::string& name) { cache_.entry_changed(directory, name); },
       [this](FileId file) { cache_.file_changed(file); }});
}

void Bridge::stop() {
  filesystem_.set_cache_events({});
  files_.stop();
  follower_.stop();
  cache_.stop();
}

void Bridge::init(fuse_conn_info* connection) {
  auto want = [&](unsigned capability) {
    if ((connection->capable & capability) != 0) connection->want |= capability;
  };
  auto refuse_capability = [&](unsigned capability) { connection->want &= ~capability; };
  connection->max_write = limits::kMiB;
  // More than reads of hanging files may take: others read ahead in the background, too.
  connection->max_background = 256;
  connection->congestion_threshold = 192;
  connection->time_gran = 1;
  want(FUSE_CAP_ASYNC_READ);
  want(FUSE_CAP_ASYNC_DIO);
  want(FUSE_CAP_ATOMIC_O_TRUNC);
  want(FUSE_CAP_PARALLEL_DIROPS);
  want(FUSE_CAP_READDIRPLUS);
  want(FUSE_CAP_READDIRPLUS_AUTO);
  // The kernel reads access lists, and checks them. It leaves the umask to the mount, because a
  // default list takes its place.
  want(FUSE_CAP_POSIX_ACL);
  want(FUSE_CAP_DONT_MASK);
  if (options_.writeback) want(FUSE_CAP_WRITEBACK_CACHE);
  // A node holds one version, so the kernel need not guess from time and size whether pages are
  // valid.
  refuse_capability(FUSE_CAP_AUTO_INVAL_DATA);
  want(FUSE_CAP_EXPLICIT_INVAL_DATA);
  // Each thread receives requests into a buffer of its own, which costs less than a pipe.
  refuse_capability(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
#ifdef FUSE_CAP_EXPIRE_ONLY
  want(FUSE_CAP_EXPIRE_ONLY);
#endif
  cache_.init(*connection);
}

}  // namespace stdchk::mount
