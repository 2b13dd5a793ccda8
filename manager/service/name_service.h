#pragma once

#include "core/messages/messages.h"
#include "manager/clients/call.h"
#include "manager/clients/clients.h"
#include "manager/clients/notices.h"
#include "manager/pool/pool.h"
#include "manager/pool/replaced_files.h"
#include "manager/sessions/file_attributes.h"
#include "manager/sessions/set_rewrites.h"
#include "manager/sets/set_keeper.h"

namespace stdchk::manager {

/// A NameService serves requests on names, attributes, policies and sets of images.
///
/// Threads: the reactor's.
class NameService {
 public:
  struct Neighbours {
    Notices& notices;
    SetKeeper& sets;
    const SetRewrites& rewrites;
    ReplacedFiles& replaced;
    const FileAttributes& attributes;
  };
  NameService(Pool& pool, Neighbours neighbours);

  void serve(ClientRecord& client, const msg::Lookup& request, const Call& call);
  void serve(ClientRecord& client, const msg::GetAttributes& request, const Call& call);
  void serve(ClientRecord& client, const msg::ReadDirectory& request, const Call& call);
  void serve(ClientRecord& client, const msg::SetAttributes& request, const Call& call);
  void serve(ClientRecord& client, const msg::MakeDirectory& request, const Call& call);
  void serve(ClientRecord& client, const msg::MakeSymlink& request, const Call& call);
  void serve(ClientRecord& client, const msg::MakeNode& request, const Call& call);
  void serve(ClientRecord& client, const msg::MakeLink& request, const Call& call);
  void serve(ClientRecord& client, const msg::ReadSymlink& request, const Call& call);
  void serve(ClientRecord& client, const msg::Remove& request, const Call& call);
  void serve(ClientRecord& client, const msg::Rename& request, const Call& call);
  void serve(ClientRecord& client, const msg::SetXattr& request, const Call& call);
  void serve(ClientRecord& client, const msg::GetXattrs& request, const Call& call);
  void serve(ClientRecord& client, const msg::GetPolicy& request, const Call& call);
  void serve(ClientRecord& client, const msg::SetPolicy& request, const Call& call);
  void serve(ClientRecord& client, const msg::ListSets& request, const Call& call);
  /// Serves a request that the client has sent to an earlier manager, which has not answered. It
  /// may have been executed then.
  template <class M>
  void serve_again(ClientRecord& client, const M& request, const Call& call);

 private:
  template <class M>
  std::uint32_t mode_of_new(const M& request) const;
  template <class M, class Command>
  void make_file(ClientRecord& client, const M& request, Command command, const Call& call);
  template <class M>
  rpc::Answer answer_again(ClientRecord& client, const M& request);
  template <class M>
  rpc::Answer attributes_again(const File* file) const;
  std::uint32_t names_of(FileId file) const;
  bool must_wait(const File& file, FileId folder, std::string_view name) const;
  bool must_wait(const msg::Rename& request) const;
  Status check_move(const msg::Rename& request, const File& moved, ClientId viewer) const;
  FileId drop_resumed(ClientRecord& client, const msg::Remove& request);

  Pool& pool_;
  State& state_;
  Neighbours to_;
};

template <class M>
void NameService::serve_again(ClientRecord& client, const M& request, const Call& call) {
  switch (state_.completion_records().find({request.client, call.id()})) {
    case CompletionRecords::Found::kNotDone:
      return serve(client, request, call);
    case CompletionRecords::Found::kForgotten:
      return call.fail(Code::kFenced, M::kName);
    case CompletionRecords::Found::kDone:
      return pool_.journal().when_durable(
          [call, answer = answer_again(client, request)] { call.answer(answer); });
  }
}

/// The request was executed; other clients may have changed the same name since then.
template <class M>
rpc::Answer NameService::answer_again(ClientRecord& client, const M& request) {
  if constexpr (std::is_same_v<M, msg::SetAttributes>) {
    return attributes_again<M>(state_.file(request.file));
  } else if constexpr (std::is_same_v<M, msg::MakeDirectory> ||
                       std::is_same_v<M, msg::MakeSymlink>) {
    constexpr bool kDirectory = std::is_same_v<M, msg::MakeDirectory>;
    const FileType type = kDirectory ? FileType::kDirectory : FileType::kSymlink;
    const File* made = state_.lookup(request.parent, request.name, {}).value_or(nullptr);
    return attributes_again<M>(made != nullptr && made->type == type ? made : nullptr);
  } else if constexpr (std::is_same_v<M, msg::Remove>) {
    return msg::Remove::Reply{drop_resumed(client, request), {}, 0};
  } else if constexpr (std::is_same_v<M, msg::MakeLink>) {
    return attributes_again<M>(state_.file(request.file));
  } else if constexpr (std::is_same_v<M, msg::MakeNode>) {
    const File* made = state_.lookup(request.parent, request.name, {}).value_or(nullptr);
    return attributes_again<M>(made != nullptr && made->type == request.type ? made : nullptr);
  } else if constexpr (std::is_same_v<M, msg::SetXattr>) {
    return msg::SetXattr::Reply{to_.attributes.of_id(request.file)};
  } else {
    return typename M::Reply{};
  }
}

template <class M>
rpc::Answer NameService::attributes_again(const File* file) const {
  if (file == nullptr) {
    return tl::unexpected(rpc::Failure{{Code::kStale, 0, M::kName}, {}, {}});
  }
  return typename M::Reply{to_.attributes.of(*file)};
}

}  // namespace stdchk::manager
