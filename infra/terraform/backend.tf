# The bucket is made by `make deploy`, which names it with -backend-config; plain checks run `init -backend=false`.
terraform {
  backend "gcs" {}
}
