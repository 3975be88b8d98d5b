//! Holders of tokens for one realm have a share of tables that all realms have in common.

use admin::Role;

use crate::support::Server;

#[tokio::test]
async fn a_revocation_counts_for_the_share_of_its_tenant() {
    let server = Server::start().await;
    let tenant = server.token_of("other.example", Role::Operate);
    let operator = server.token(Role::Operate);
    for (token, body, by_tenant) in [
        (&tenant, r#"{"name": "bob"}"#, true),
        (&operator, r#"{"name": "bob"}"#, false),
        (&operator, r#"{"name": "bob", "realm": "other.example"}"#, false),
    ] {
        let bearer = format!("authorization: Bearer {token}\r\n");
        let answer = server.ask("POST", "/v1/revocations", &bearer, body).await;
        let ended = if by_tenant { "\"ended\":1" } else { "\"ended\":2" };
        assert!(answer.body.contains(ended), "{body}: {}", answer.body);
    }
}
