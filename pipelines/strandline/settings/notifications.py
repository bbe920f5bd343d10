"""Settings section ``notifications``: who is told when something is wrong. Used by `cli` and `jobs` only."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from strandline.settings.selection import Names, Section


class NotificationSettings(Section):
    """Messages of a running `capture` or `run`: one when a state begins, one when it ends."""

    webhook_url: SecretStr | None = Field(
        None, description="URL that gets each message as JSON (POST). `text` holds it as one line. null: no webhook."
    )
    email_to: Names = Field((), description="Recipients of e-mails. Empty: no e-mail.")
    email_from: str | None = Field(None, description="Sender of e-mails. Required by `email_to`.")
    smtp_host: str | None = Field(None, description="Name of the SMTP server. Required by `email_to`.")
    smtp_port: int = Field(587, ge=1, le=65_535, description="TCP port of the SMTP server.")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="`starttls`: encrypt after the greeting. `tls`: encrypt from the start. `none`: do not."
    )
    smtp_user: str | None = Field(None, description="User of the SMTP server. null: no login.")
    smtp_password: SecretStr | None = Field(None, description="Password of the SMTP user.")
    interval_ms: int = Field(10_000, ge=100, description="Time between two looks at the state, in ms.")
    lag_seconds: int | None = Field(300, ge=1, description="Lag that is told, in seconds. null: no lag is told.")
    disconnected_seconds: int | None = Field(
        60, ge=1, description="Time without a change stream that is told, in seconds. null: it is not told."
    )
    snapshot_stalled_seconds: int | None = Field(
        1_800,
        ge=1,
        description="Time without a commit of a running snapshot that is told, in seconds. null: it is not told.",
    )

    @field_validator("webhook_url")
    @classmethod
    def _is_web(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(("http://", "https://")):
            raise ValueError("a webhook is an http:// or https:// URL")
        return value

    @model_validator(mode="after")
    def _check_mail(self) -> NotificationSettings:
        missing = [name for name in ("email_from", "smtp_host") if getattr(self, name) is None]
        if self.email_to and missing:
            raise ValueError(f"email_to needs {' and '.join(missing)}")
        if self.smtp_user is not None and self.smtp_security == "none":
            raise ValueError("smtp_user is set and smtp_security is none: the password would be readable on the way")
        return self
