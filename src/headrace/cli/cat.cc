#include "headrace/base/crc32c.h"
#include "headrace/base/text.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/find_sample.h"
#include "headrace/cli/locate.h"
#include "headrace/dataset/dataset.h"

namespace headrace::cli {
namespace {

using dataset::Dataset;
using dataset::SampleReader;
using dataset::SampleView;

class CatCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  Status SplitOperands();
  Result<dataset::FieldId> ChooseField(const Dataset& data, const SampleView& view) const;
  void PrintJson(Session* session, const Dataset& data, const SampleView& view, Bytes bytes,
                 dataset::FieldId field) const;

  std::string dataset_;
  std::vector<std::string> operands_;
  std::optional<uint64_t> index_;
  std::string key_, field_;
};

void CatCommand::Declare(Arguments* arguments) {
  arguments->Text("dataset", &dataset_, "A data set, tar, folder or list, by path or URL");
  arguments->Texts("what", &operands_, 0,
                   "KEY [FIELD], or with --index only [FIELD]; the field may be left out when the "
                   "sample has one");
  arguments->Count("--index", &index_, "The sample with this number, counted from 0, not a key");
  arguments->Note(
      "The bytes are checked against their checksum first. A key may be written as `ls` "
      "prints it.");
  arguments->Example("headrace cat packed/ cat/0001 jpg > photo.jpg", "One field of one sample");
  arguments->Example("headrace cat packed/ --index 0 cls", "The label of the first sample");
}

Status CatCommand::SplitOperands() {
  size_t keys = index_ ? 0 : 1;
  if (operands_.size() < keys)
    return Status(Code::kInvalidArgument, "which sample? Give a KEY, or --index N");
  if (operands_.size() > keys + 1)
    return Error(Code::kInvalidArgument, "expected {}, found {} operands",
                 index_ ? "DATASET [FIELD] with --index" : "DATASET KEY [FIELD]",
                 operands_.size() + 1);
  if (keys == 1) key_ = operands_[0];
  if (operands_.size() > keys) field_ = operands_[keys];
  return OkStatus();
}

Result<dataset::FieldId> CatCommand::ChooseField(const Dataset& data,
                                                 const SampleView& view) const {
  std::string names;
  for (const dataset::FieldEntry& entry : view.entries) {
    if (data.fields()[entry.field] == field_) return entry.field;
    names += (names.empty() ? "" : ", ") + EscapeText(data.fields()[entry.field]);
  }
  if (field_.empty() && view.entries.size() == 1) return view.entries[0].field;
  if (field_.empty())
    return Error(Code::kInvalidArgument, "which field of '{}'? It has {}", EscapeText(view.key),
                 names);
  return Error(Code::kNotFound, "sample '{}' has no field '{}'; it has {}", EscapeText(view.key),
               EscapeText(field_), names);
}

Result<ExitCode> CatCommand::Run(Session* session) {
  HR_RETURN_IF_ERROR(SplitOperands());
  HR_ASSIGN_OR_RETURN(object::Place place, Locate(*session, dataset_));
  HR_ASSIGN_OR_RETURN(auto data, Dataset::Open(place.fs, place.path, {}));
  HR_ASSIGN_OR_RETURN(uint64_t id, FindSample(*data, index_, key_));
  auto reader = SampleReader::Create(data, {});
  HR_ASSIGN_OR_RETURN(SampleView view, reader->Locate(id));
  HR_ASSIGN_OR_RETURN(dataset::FieldId field, ChooseField(*data, view));
  HR_ASSIGN_OR_RETURN(view, reader->Read(id, std::span(&field, 1), session->ctx));
  Bytes bytes = view.Find(field)->data;
  if (session->json) {
    PrintJson(session, *data, view, bytes, field);
  } else {
    session->out->Write(bytes);
  }
  return ExitCode::kOk;
}

void CatCommand::PrintJson(Session* session, const Dataset& data, const SampleView& view,
                           Bytes bytes, dataset::FieldId field) const {
  Json json = Json::MakeObject()
                  .Set("index", view.id)
                  .Set("key", EscapeText(view.key))
                  .Set("field", EscapeText(data.fields()[field]))
                  .Set("shard", EscapeText(view.shard))
                  .Set("bytes", static_cast<uint64_t>(bytes.size()))
                  .Set("crc32c", fmt::format("{:08x}", Crc32c(bytes)));
  for (const dataset::FieldEntry& entry : view.entries) {
    if (entry.field == field) json.Set("offset", entry.offset);
  }
  if (IsValidUtf8(AsText(bytes))) json.Set("text", AsText(bytes));
  session->out->Print(json);
}

}  // namespace

std::unique_ptr<Command> MakeCatCommand() { return std::make_unique<CatCommand>(); }

}  // namespace headrace::cli
