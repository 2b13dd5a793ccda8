#include "tests/sim/set_script.h"

#include "manager/service/service.h"

namespace stdchk::sim {

void SetScript::run(PlainClient& client) {
  ++operations_;
  client_ = &client;
}

void SetScript::end(std::uint64_t outcome) {
  client_ = nullptr;
  if_lost_ = nullptr;
  note_(outcome * 131 + sets_begun());
}

void SetScript::client_died(const PlainClient& client) {
  if (client_ != &client) return;
  if (if_lost_) if_lost_();
  end(1);
}

void SetScript::make_folder() {
  const msg::Lookup look_up{client_->id(), kRootFile, name_};
  client_->ask(look_up, while_running<rpc::Answer>([this](const rpc::Answer& found) {
                 if (found.has_value()) {
                   folder_ = std::get<msg::Lookup::Reply>(*found).attributes.id;
                   return end(2);
                 }
                 if (found.error().error.code != Code::kNotFound) return end(3);
                 // After a lost answer, the next look-up tells whether the folder exists.
                 msg::MakeDirectory request;
                 request.client = client_->id();
                 request.parent = kRootFile;
                 request.name = name_;
                 request.mode = 0755;
                 client_->ask(request,
                              while_running<rpc::Answer>([this](const rpc::Answer&) { end(4); }));
               }));
}

void SetScript::set_attribute(const std::string& name, const std::string& value,
                              std::function<void(bool)> done) {
  msg::SetXattr request;
  request.client = client_->id();
  request.file = folder_;
  request.name = name;
  request.value = value;
  client_->ask(request, while_running<rpc::Answer>([done = std::move(done)](const auto& answer) {
                 done(answer.has_value());
               }));
}

const manager::File* SetScript::folder() const {
  if (!folder_ || cluster_.manager() == nullptr) return nullptr;
  return cluster_.manager()->state().file(folder_);
}

void SetScript::remove_all(PlainClient& client) {
  run(client);
  remove_next();
}

void SetScript::remove_next() {
  const manager::File* at = folder();
  if (at == nullptr || at->as_directory.children.empty()) return end(13);
  const manager::State& state = cluster_.manager()->state();
  const manager::File* next = state.file(at->as_directory.children.begin()->second);
  if (next->type == FileType::kDirectory && !next->as_directory.children.empty()) {
    at = next;
    next = state.file(at->as_directory.children.begin()->second);
  }
  const std::string name = at->as_directory.children.begin()->first;
  const msg::Remove request{client_->id(), at->id, name, next->type == FileType::kDirectory};
  client_->ask(request, while_running<rpc::Answer>([this](const rpc::Answer& answer) {
                 // The pool itself removes the link to the newest set.
                 if (!answer.has_value() && answer.error().error.code != Code::kNotFound) {
                   complain_(name_ + ": a removal fails: " + describe(answer.error().error));
                   return end(14);
                 }
                 remove_next();
               }));
}

}  // namespace stdchk::sim
